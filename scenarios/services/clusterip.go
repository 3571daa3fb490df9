// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// clusterip returns the scenarios of ClusterIPs: a virtual address that every node translates to one of the pods behind it.
func clusterip() []spec.Scenario {
	return slices.Concat(clusteripServed(), edges())
}

func clusteripServed() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "clusterip-pod-to-remote-pod",
			Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
			Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, SeenAs: spec.Itself(),
					Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID:    "clusterip-pod-to-local-pod",
			Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"b1"}, SeenAs: spec.Itself()},
			}}},
		},
		{
			ID:    "clusterip-host-process",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		{
			ID:    "clusterip-every-node",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Pod("a2", "n2"), Pod("a3", "n3"), Backend("b2", "n2"), Service("web")},
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
			ID:    "clusterip-target-port-rewrite",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web", Port(80, 8080))},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, Port: 8080},
				{From: "a1", To: spec.ClusterIPRaw("web", 8080), Want: spec.NotServed},
			}}},
		},
		{
			ID:    "clusterip-one-connection-one-endpoint",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
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
			ID:    "clusterip-multiport",
			Needs: []spec.Feature{spec.ClusterIP},
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
			ID:    "clusterip-same-port-tcp-udp",
			Needs: []spec.Feature{spec.ClusterIP},
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
			ID: "clusterip-external-unrouted", HoldsWithoutProxier: true,
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Backend("a1", "n1"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
			}}},
		},
		spread(),
		replyFromVIP(),
		isVirtual(),
	}
}
