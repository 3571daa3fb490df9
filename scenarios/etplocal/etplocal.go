// SPDX-License-Identifier: Apache-2.0

// Package etplocal holds the scenarios of externalTrafficPolicy Local: outside traffic stays on the node it came to and
// keeps its client's address.
package etplocal

import (
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = slices.Concat(paths, changes)

var paths = []spec.Scenario{
	{
		ID: "etp-local-source-preserved", Group: "etp-local", Priority: spec.P0,
		Source: "e2e 'support externalTrafficPolicy=Local for type=NodePort'",
		Why:    "The pod sees the real client, address and port; the node translates the destination alone.",
		Needs:  []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress, spec.KernelNAT},
		Given:  []store.Object{Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, SeenAs: spec.Itself(),
				Flow: spec.TranslatedOn("n1")},
		}}},
	},
	{
		ID: "etp-local-only-local-endpoints", Group: "etp-local", Priority: spec.P0,
		Source: "TestExternalTrafficPolicyLocal",
		Why:    "A node sends outside traffic to its own pods only.",
		Needs:  []spec.Feature{spec.NodePort, spec.ETPLocal},
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"),
			Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 40, By: []string{"a1"}},
		}}},
	},
	{
		ID: "etp-local-no-endpoint-drops", Group: "etp-local", Priority: spec.P0,
		Source: "kpng service-proxy.md (why drop); TestExternalTrafficPolicyLocal 'no locally-usable endpoints'",
		Why: "A node without a pod of its own stays silent to outside traffic, so that a load balancer takes another " +
			"node.",
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer, spec.ExternalIPs},
		Given: []store.Object{
			Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal(), ExternalIPs("198.51.100.11", "2001:db8:51::11")),
		},
		Steps: []spec.Step{
			{
				Name: "by way of the node without a pod",
				Do: []spec.Action{
					Ingress("web", "203.0.113.11", "2001:db8:113::11"),
					RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n3"),
					RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n3"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
					{From: "client", To: spec.IngressOf("web", 80), Want: spec.Silence},
					{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), Want: spec.Silence},
				},
			},
			{
				Name: "by way of the node that has it",
				Do: []spec.Action{
					RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n1"),
					RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n1"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}},
					{From: "client", To: spec.IngressOf("web", 80), By: []string{"a1"}},
					{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), By: []string{"a1"}},
				},
			},
		},
	},
	{
		ID: "etp-local-clusterip-unaffected", Group: "etp-local", Priority: spec.P0,
		Source: "TestExternalTrafficPolicyLocal 'pod to ClusterIP with eTP:Local'",
		Why:    "The policy is about outside traffic: on a node without a pod the ClusterIP works as ever.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.ETPLocal},
		Given:  []store.Object{Pod("c3", "n3"), Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c3", To: spec.ClusterIPOf("web", 80), By: []string{"a1"}},
		}}},
	},
	{
		ID: "etp-local-host-shortcut", Group: "etp-local", Priority: spec.P0,
		Source: "TestExternalTrafficPolicyLocal 'node to NodePort with eTP:Local', 'node to LB with eTP:Local'",
		Why: "A process on a node without a pod reaches the NodePort and the load balancer's address of its own node: " +
			"it is not outside traffic.",
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer},
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{{
			Do: []spec.Action{Ingress("web", "203.0.113.12", "2001:db8:113::12")},
			Rows: []spec.Row{
				{From: "n3", To: spec.NodePortAt("n3", "web", 80), By: []string{"a1", "a2"}, Even: true,
					SeenAs: spec.NodeAddr("n3")},
				{From: "n3", To: spec.IngressOf("web", 80), By: []string{"a1", "a2"}, Even: true, SeenAs: spec.NodeAddr("n3")},
			},
		}},
	},
	{
		ID: "etp-local-imbalance", Group: "etp-local", Priority: spec.P0,
		Source: "kubernetes.io: the drawback of Local is uneven load",
		Why: "Where a load balancer gives every node the same share, a node's only pod gets all of it and three pods " +
			"get a third each.",
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
		Given: []store.Object{
			Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"), Backend("c2", "n2"),
			Service("web", NodePort(), ETPLocal()),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 90, By: []string{"a1"}},
			{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2", "b2", "c2"}, Even: true},
		}}},
	},
	healthyNodes,
}
