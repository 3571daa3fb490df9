// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// egress returns the scenarios of the pod network itself and of masquerading: what must hold beside the proxier.
func egress() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "base-pod-and-node-no-nat", HoldsWithoutProxier: true,
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
			ID: "base-pod-egress-snat", HoldsWithoutProxier: true,
			Given: []store.Object{Pod("a1", "n1")},
			Steps: []spec.Step{{
				Do: []spec.Action{Serve("client", "tcp", 18091)},
				Rows: []spec.Row{{From: "a1", To: spec.HostAt("client", 18091), By: []string{"client"},
					SeenAs: spec.NodeAddr("n1")}},
			}},
		},
		{
			ID: "base-external-to-pod-ip", HoldsWithoutProxier: true,
			Given: []store.Object{Backend("a1", "n1")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.HostAt("a1", 8080), Want: spec.NotServed},
			}}},
		},
		{
			ID: "base-ip-forward", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
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
		egressInterface(),
		markCleared(),
		portCollisions(),
	}
}

func forwarding(value string) spec.Action {
	return Sysctls("n1",
		netns.Setting{Key: "net.ipv4.ip_forward", Value: value},
		netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: value})
}
