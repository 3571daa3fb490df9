// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// topology returns the scenarios of topology hints and spec.trafficDistribution: which endpoints are near enough.
func topology() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "topo-same-zone", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("hinted", Selecting("")),
				Service("web", Prefer(corev1.ServiceTrafficDistributionPreferClose))),
			Steps: []spec.Step{{
				Do: []spec.Action{Slice("all", "hinted", "", 8080,
					SliceEndpoint{Host: "a1", ForZones: []string{"east"}},
					SliceEndpoint{Host: "a2", ForZones: []string{"east", "west"}},
					SliceEndpoint{Host: "a3", ForZones: []string{"west"}},
				)},
				Rows: []spec.Row{
					even("c1", "hinted", "a1", "a2"), even("c2", "hinted", "a2", "a3"), even("n3", "hinted", "a2", "a3"),
					only("c1", "web", "a1"), even("c2", "web", "a2", "a3"),
				},
			}},
		},
		topoHintsIgnoredWhenIncomplete(),
		{
			ID: "topo-unready-zone-fallback", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("web", Prefer(corev1.ServiceTrafficDistributionPreferSameZone))),
			Steps: []spec.Step{
				{Name: "all ready", Rows: []spec.Row{only("c1", "web", "a1")}},
				{Name: "a1 is not", Do: []spec.Action{Readiness("a1", false)}, Rows: []spec.Row{even("c1", "web", "a2", "a3")}},
				{Name: "a1 is back", Do: []spec.Action{Readiness("a1", true)}, Rows: []spec.Row{only("c1", "web", "a1")}},
			},
		},
		topoPreferSameNode(),
		{
			ID:    "topo-vs-policies",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal, spec.Topology},
			Given: append(clientsAndBackends(),
				Service("outer", Selecting(""), NodePort(), ETPLocal()), Service("inner", Selecting(""), NodePort(), ITPLocal())),
			Steps: []spec.Step{{
				Do: []spec.Action{contrary("outer"), contrary("inner")},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "outer", 80), Times: lifecycleDraws, Servers: []string{"a1"}},
					only("c1", "outer", "a2"),
					only("c1", "inner", "a1"),
					{From: "client", To: spec.NodePortAt("n1", "inner", 80), Times: lifecycleDraws, Servers: []string{"a2"}},
				},
			}},
		},
		{
			ID: "topo-node-relabel", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("web", Selecting("")), Service("named", Selecting(""))),
			Steps: []spec.Step{
				{
					Name: "n1 is in the east",
					Do: []spec.Action{Slice("all", "web", "", 8080,
						SliceEndpoint{Host: "a1", ForZones: []string{"east"}}, SliceEndpoint{Host: "a2", ForZones: []string{"west"}}),
						Slice("named", "named", "", 8080,
							SliceEndpoint{Host: "a1", ForNodes: []string{"n1"}, ForZones: []string{"east"}},
							SliceEndpoint{Host: "a2", ForNodes: []string{"n2"}, ForZones: []string{"west"}})},
					Rows: []spec.Row{only("c1", "web", "a1")},
				},
				{Name: "n1 is in the west", Do: []spec.Action{Zone("n1", "west")}, Rows: []spec.Row{only("c1", "web", "a2")}},
				{Name: "the proxier starts in the west", Do: []spec.Action{Restart("n1")},
					Rows: []spec.Row{only("c1", "web", "a2")}},
				{Name: "n1 is in no zone", Do: []spec.Action{Zone("n1", "")},
					Rows: []spec.Row{even("c1", "web", "a1", "a2"), onNodesWithHints(only("c1", "named", "a1"))}},
			},
		},
	}
}

// onNodesWithHints limits a row to proxiers that know node hints.
func onNodesWithHints(r spec.Row) spec.Row {
	r.If = spec.NodeHints
	return r
}

func topoPreferSameNode() spec.Scenario {
	return spec.Scenario{
		ID: "topo-prefer-same-node", Needs: []spec.Feature{spec.ClusterIP, spec.Topology, spec.NodeHints},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("c2", "n2"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("web", Prefer(corev1.ServiceTrafficDistributionPreferSameNode)),
		},
		Steps: []spec.Step{
			{Name: "n3 has none, its zone has one", Rows: []spec.Row{
				only("c1", "web", "a1"), only("c2", "web", "a2"), only("c3", "web", "a2"),
			}},
			{Name: "that of n1 is not ready", Do: []spec.Action{Readiness("a1", false), Apply(Backend("a3", "n3"))},
				Rows: []spec.Row{
					even("c1", "web", "a2", "a3"), only("c2", "web", "a2"), only("c3", "web", "a3"),
				}},
			{Name: "it is back", Do: []spec.Action{Readiness("a1", true)}, Rows: []spec.Row{
				only("c1", "web", "a1"), only("c2", "web", "a2"), only("c3", "web", "a3"),
			}},
		},
	}
}

func topoHintsIgnoredWhenIncomplete() spec.Scenario {
	return spec.Scenario{
		ID: "topo-hints-ignored-when-incomplete", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
		Given: append(clientsAndBackends(), Service("missing", Selecting("")), Service("elsewhere", Selecting(""))),
		Steps: []spec.Step{{
			Do: []spec.Action{
				Slice("missing", "missing", "", 8080, SliceEndpoint{Host: "a1", ForZones: []string{"east"}},
					SliceEndpoint{Host: "a2"}),
				Slice("elsewhere", "elsewhere", "", 8080,
					SliceEndpoint{Host: "a1", ForZones: []string{"north"}}, SliceEndpoint{Host: "a2", ForZones: []string{"west"}},
					// What is not ready has no say.
					SliceEndpoint{Host: "a3", State: Unready}),
			},
			Rows: []spec.Row{
				even("c1", "missing", "a1", "a2"), even("c2", "missing", "a1", "a2"),
				even("c1", "elsewhere", "a1", "a2"), only("c2", "elsewhere", "a2"),
			},
		}},
	}
}

func clientsAndBackends() []store.Object {
	return []store.Object{Pod("c1", "n1"), Pod("c2", "n2"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3")}
}

// contrary lists each node's endpoint for the zone of the other.
func contrary(service string) spec.Action {
	return Slice(service, service, "", 8080, SliceEndpoint{Host: "a1", ForZones: []string{"west"}},
		SliceEndpoint{Host: "a2", ForZones: []string{"east"}})
}

// only wants every connection to a Service served by one pod, even wants them spread over several.
func only(from, service, by string) spec.Row {
	return spec.Row{From: from, To: spec.ClusterIPOf(service, 80), Times: lifecycleDraws, Servers: []string{by}}
}

func even(from, service string, by ...string) spec.Row {
	return spec.Row{From: from, To: spec.ClusterIPOf(service, 80), Servers: by, Even: true}
}
