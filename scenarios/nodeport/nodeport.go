// SPDX-License-Identifier: Apache-2.0

// Package nodeport holds the scenarios of NodePorts: the same port on every node, for clients outside the cluster.
package nodeport

import (
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = slices.Concat(served, clients, changes)

var served = []spec.Scenario{
	{
		ID: "nodeport-node-with-endpoint", Group: "nodeport", Priority: spec.P0,
		Source: "e2e service.go 'create a functioning NodePort service'; TestExternalTrafficPolicyCluster",
		Why: "A client outside reaches a pod through the NodePort of the node that the pod runs on; the pod sees the " +
			"node.",
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, Port: 8080, SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "nodeport-node-without-endpoint", Group: "nodeport", Priority: spec.P0,
		Source: "externalTrafficPolicy Cluster: any node serves, at the price of a hop",
		Why: "A node without a pod forwards to one that has it: it rewrites the destination to the pod and the source " +
			"to itself.",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1"),
				Flow: spec.MasqueradedOn("n1")},
		}}},
	},
	{
		ID: "nodeport-every-node", Group: "nodeport", Priority: spec.P0,
		Source: "kubernetes.io: every node proxies that port",
		Why:    "The NodePort works on every node.",
		Needs:  []spec.Feature{spec.NodePort},
		Given:  []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
			{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2"}},
			{From: "client", To: spec.NodePortAt("n3", "web", 80), By: []string{"a2"}},
		}}},
	},
	{
		ID: "nodeport-any-local-address", Group: "nodeport", Priority: spec.P0,
		Source: "dst-type LOCAL in KUBE-SERVICES; KEP-3866 for the difference in nftables mode",
		Why:    "The NodePort answers on every address of the node, not on its primary one alone.",
		Needs:  []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
		Given:  []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
			{From: "client", To: spec.NodePortAt("n1", "web", 80).On(spec.Secondary), By: []string{"a2"}},
		}}},
	},
	{
		ID: "nodeport-has-clusterip", Group: "nodeport", Priority: spec.P0,
		Source: "kubernetes.io: a NodePort Service has a ClusterIP too",
		Why:    "A NodePort Service serves the same pods on its ClusterIP.",
		Needs:  []spec.Feature{spec.NodePort, spec.ClusterIP},
		Given:  []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("b2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"b1", "b2"}, Even: true},
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"b1", "b2"}, Even: true},
		}}},
	},
	{
		ID: "nodeport-localhost", Group: "nodeport", Priority: spec.P0,
		Source: "TestNodePorts 'localhost to nodePort gets masqueraded'; kubernetes#132955",
		Why:    "A process on the node reaches the NodePort on 127.0.0.1, but never on ::1.",
		Needs:  []spec.Feature{spec.NodePort, spec.NodePortLocalhost},
		Given:  []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Loopback), Family: lab.V4, By: []string{"a2"},
				SeenAs: spec.NodeAddr("n1")},
			{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Loopback), Family: lab.V6, Want: spec.Refused},
			{From: "n1", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
		}}},
	},
	{
		ID: "nodeport-forward-policy-drop", Group: "nodeport", Priority: spec.P0, Own: &spec.Own{Nodes: []string{"n1"}},
		Source: "KUBE-FORWARD accepts marked and established packets",
		Why: "The NodePort works on a node whose FORWARD chain drops by default, because the proxier lets its own " +
			"traffic through.",
		Needs: []spec.Feature{spec.NodePort, spec.ForwardAccept},
		Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{
			Name: "FORWARD drops", Do: []spec.Action{ForwardPolicy("n1", "DROP")},
			Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}}},
		}},
	},
	singleNATHop,
	allocationRules,
}
