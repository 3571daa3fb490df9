// SPDX-License-Identifier: Apache-2.0

package services

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// edges are the scenarios of uncommon clients, pods and sizes, and of what is no Service.
func edges() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "clusterip-external-routed",
			Needs: []spec.Feature{spec.ClusterIP, spec.ClusterIPFromOutside},
			Given: []store.Object{Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{
				Do: []spec.Action{RouteService("client", "web", "n1")},
				Rows: []spec.Row{
					{From: "client", To: spec.ClusterIPOf("web", 80), Times: 10, By: []string{"b1", "a2"}, Port: 8080,
						SeenAs: spec.NodeAddr("n1")},
				},
			}},
		},
		{
			ID:    "clusterip-wrong-port-or-proto",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2", UDP(8080), TCP(9090)), Service("web"),
				Service("other", Selecting("web"), Port(81, 9090)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}, Port: 8080},
				{From: "c1", To: spec.ClusterIPOf("other", 81), By: []string{"a2"}, Port: 9090},
				{From: "c1", To: spec.ClusterIPRaw("web", 80), Proto: "udp", Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPRaw("other", 80), Want: spec.NotServed},
				{From: "n1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
			}}},
		},
		{
			ID:    "clusterip-hostnetwork-endpoint",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("h1", "n1", HostNetwork(), App("near"), TCP(18083)),
				Pod("h2", "n2", HostNetwork(), App("far"), TCP(18083)),
				Service("near", Port(80, 18083)), Service("far", Port(80, 18083)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), By: []string{"h1"}},
				{From: "c1", To: spec.ClusterIPOf("far", 80), By: []string{"h2"}},
				{From: "n1", To: spec.ClusterIPOf("near", 80), By: []string{"h1"}},
				{From: "n1", To: spec.ClusterIPOf("far", 80), By: []string{"h2"}},
				{From: "n3", To: spec.ClusterIPOf("near", 80), By: []string{"h1"}},
			}}},
		},
		{
			ID:    "clusterip-large-payload",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("b1", "n1", App("near")), Backend("a2", "n2", App("far")), Service("near"), Service("far"),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), Payload: 2 << 20, By: []string{"b1"}},
				{From: "c1", To: spec.ClusterIPOf("far", 80), Payload: 2 << 20, By: []string{"a2"}},
			}}},
		},
		{
			ID:      "clusterip-masquerade-all",
			Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{MasqueradeAll: true}, Nodes: []string{"n1"}},
			Needs:   []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("b1", "n1", App("near")), Backend("a2", "n2", App("far")), Service("near"), Service("far"),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), By: []string{"b1"}, SeenAs: spec.NodeAddr("n1")},
				{From: "c1", To: spec.ClusterIPOf("far", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		unallocated(),
		echo(),
	}
}
