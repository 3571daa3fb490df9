// SPDX-License-Identifier: Apache-2.0

// Package egress holds the scenarios of the pod network itself and of masquerading: what must hold beside the proxier.
package egress

import (
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "base-pod-and-node-no-nat", Group: "node-egress-masquerade", Priority: spec.P0, Inert: true,
		Source: "e2e no_snat.go; the Kubernetes network model",
		Why:    "Pods and nodes reach each other without translation, on one node and across nodes.",
		Given: []store.Object{
			Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"),
			Pod("h1", "n1", HostNetwork(), TCP(18090)), Pod("h2", "n2", HostNetwork(), TCP(18090)),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.HostAt("b1", 8080), By: []string{"b1"}, SeenAs: spec.Itself()},
			{From: "a1", To: spec.HostAt("a2", 8080), By: []string{"a2"}, SeenAs: spec.Itself()},
			{From: "n1", To: spec.HostAt("a1", 8080), By: []string{"a1"}, SeenAs: spec.Itself()},
			{From: "n1", To: spec.HostAt("a2", 8080), By: []string{"a2"}, SeenAs: spec.Itself()},
			{From: "a1", To: spec.HostAt("n1", 18090), By: []string{"h1"}, SeenAs: spec.Itself()},
			{From: "a1", To: spec.HostAt("n2", 18090), By: []string{"h2"}, SeenAs: spec.Itself()},
		}}},
	},
	{
		ID: "base-pod-egress-snat", Group: "node-egress-masquerade", Priority: spec.P0, Inert: true,
		Source: "what ip-masq agents and CNI plugins do",
		Why:    "A host outside the cluster sees a pod as its node, and the answer finds back to the pod.",
		Given:  []store.Object{Pod("a1", "n1")},
		Steps: []spec.Step{{
			Do: []spec.Action{Serve("client", "tcp", 18091)},
			Rows: []spec.Row{{From: "a1", To: spec.HostAt("client", 18091), By: []string{"client"},
				SeenAs: spec.NodeAddr("n1")}},
		}},
	},
	{
		ID: "base-external-to-pod-ip", Group: "node-egress-masquerade", Priority: spec.P0, Inert: true,
		Source: "pod addresses are internal to the cluster",
		Why:    "A host outside the cluster that has no routes to pods does not reach one by its address.",
		Given:  []store.Object{Backend("a1", "n1")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.HostAt("a1", 8080), Want: spec.NotServed},
		}}},
	},
	{
		ID: "base-ip-forward", Group: "node-egress-masquerade", Priority: spec.P0, Own: &spec.Own{Nodes: []string{"n1"}},
		Source: "ip_forward: without it a node is no router",
		Why: "A node that does not forward leaves a NodePort with a remote pod silent; once it forwards, the NodePort " +
			"works.",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{
			{Name: "n1 does not forward", Do: []spec.Action{forwarding("0")}, Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
			}},
			{Name: "n1 forwards", Do: []spec.Action{forwarding("1")}, Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
			}},
		},
	},
	egressInterface,
	markCleared,
	portCollisions,
}

func forwarding(value string) spec.Action {
	return Sysctls("n1",
		netns.Setting{Key: "net.ipv4.ip_forward", Value: value},
		netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: value})
}
