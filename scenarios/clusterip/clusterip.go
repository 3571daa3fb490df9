// SPDX-License-Identifier: Apache-2.0

// Package clusterip holds the scenarios of ClusterIPs: a virtual address that every node turns into one of the pods
// behind it.
package clusterip

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = slices.Concat(served, edges)

var served = []spec.Scenario{
	{
		ID: "clusterip-pod-to-remote-pod", Group: "clusterip", Priority: spec.P0,
		Source: "e2e service.go 'serve a basic endpoint from pods'; 'preserve source pod IP for traffic thru service " +
			"cluster IP'",
		Why: "A pod reaches a pod on another node through a ClusterIP; the backend sees the pod's own address, and one " +
			"conntrack entry on the client's node does the translation.",
		Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
		Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, SeenAs: spec.Itself(),
				Flow: spec.TranslatedOn("n1")},
		}}},
	},
	{
		ID: "clusterip-pod-to-local-pod", Group: "clusterip", Priority: spec.P0,
		Source: "e2e networking.go 'function for pod-Service: http'",
		Why: "A pod reaches a pod on its own node through a ClusterIP: the reply passes the node, which turns it back, " +
			"and does not take a short cut.",
		Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
		Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"b1"}, SeenAs: spec.Itself()},
		}}},
	},
	{
		ID: "clusterip-host-process", Group: "clusterip", Priority: spec.P0,
		Source: "e2e networking.go 'function for node-Service: http'",
		Why:    "A process on a node itself reaches a ClusterIP; a pod on another node sees an address of that node.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given:  []store.Object{Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "n1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "clusterip-every-node", Group: "clusterip", Priority: spec.P0,
		Source: "kpng service-proxy.md; the same tables stand on all nodes",
		Why:    "Pods and processes on every node reach the ClusterIP, whether or not their node has a pod behind it.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given:  []store.Object{Pod("a1", "n1"), Pod("a2", "n2"), Pod("a3", "n3"), Backend("b2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
			{From: "a2", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
			{From: "a3", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
			{From: "n1", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
			{From: "n2", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
			{From: "n3", To: spec.ClusterIPOf("web", 80), By: []string{"b2"}},
		}}},
	},
	{
		ID: "clusterip-target-port-rewrite", Group: "clusterip", Priority: spec.P0,
		Source: "pkg/proxy TestClusterIPGeneral 'clusterIP with TargetPort'",
		Why:    "The Service's port 80 becomes the pod's port 8080, and 8080 is no port of the Service.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given:  []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web", Port(80, 8080))},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, Port: 8080},
			{From: "a1", To: spec.ClusterIPRaw("web", 8080), Want: spec.NotServed},
		}}},
	},
	{
		ID: "clusterip-one-connection-one-endpoint", Group: "clusterip", Priority: spec.P0,
		Source: "kubernetes.io virtual-ips: connections are tracked",
		Why:    "A connection stays with the pod it was opened to while endpoints come and go.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given:  []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{
			{Name: "one endpoint", Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", By: []string{"a2"}},
			}},
			{Name: "two more", Do: []spec.Action{Apply(Backend("a3", "n3"), Backend("b1", "n1"))}, Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", By: []string{"a2"}},
				{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2", "a3", "b1"}, Even: true},
			}},
			{Name: "its own turns unready", Do: []spec.Action{Readiness("a2", false)}, Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", By: []string{"a2"}},
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 20, By: []string{"a3", "b1"}},
			}},
		},
	},
	{
		ID: "clusterip-multiport", Group: "clusterip", Priority: spec.P0,
		Source: "e2e service.go 'serve multiport endpoints from pods'",
		Why:    "Each port of a Service leads to its own port of the pod.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("a1", "n1"), Pod("a2", "n2", App("web"), Named("http", 8080), Named("adm", 9090)),
			Service("web", ServicePort("http", corev1.ProtocolTCP, 80, 8080), ServicePort("adm", corev1.ProtocolTCP, 81, 9090)),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, Port: 8080},
			{From: "a1", To: spec.ClusterIPOf("web", 81), By: []string{"a2"}, Port: 9090},
		}}},
	},
	{
		ID: "clusterip-same-port-tcp-udp", Group: "clusterip", Priority: spec.P0,
		Source: "e2e service.go 'serve endpoints on same port and different protocols'",
		Why:    "TCP and UDP on the same port number of a Service are two ports that do not mix.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("a1", "n1"), Pod("a2", "n2", App("web"), TCP(8080), UDP(8081)),
			Service("web", Port(80, 8080), UDPPort(80, 8081)),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, Port: 8080},
			{From: "a1", To: spec.ClusterIPOf("web", 80), Proto: "udp", By: []string{"a2"}, Port: 8081},
		}}},
	},
	{
		ID: "clusterip-external-unrouted", Group: "clusterip", Priority: spec.P0, Inert: true,
		Source: "a ClusterIP is internal to the cluster",
		Why:    "A host outside the cluster that has no route to the Service range does not reach a ClusterIP.",
		Needs:  []spec.Feature{spec.ClusterIP},
		Given:  []store.Object{Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
		}}},
	},
	spread,
	replyFromVIP,
	isVirtual,
}
