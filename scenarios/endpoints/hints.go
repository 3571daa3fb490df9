// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// hints returns the scenarios of hints that change or are not the same for all endpoints.
func hints() []spec.Scenario {
	east, west := []string{"east"}, []string{"west"}
	return []spec.Scenario{
		{
			ID: "topo-node-hints-incomplete", Needs: []spec.Feature{spec.ClusterIP, spec.Topology, spec.NodeHints},
			Given: append(clientsAndBackends(), Pod("c3", "n3"), Service("web", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{Slice("web", "web", "", 8080,
					SliceEndpoint{Host: "a1", ForNodes: []string{"n1"}, ForZones: east},
					SliceEndpoint{Host: "a2", ForZones: west},
					SliceEndpoint{Host: "a3", ForNodes: []string{"n3"}, ForZones: west})},
				Rows: []spec.Row{only("c1", "web", "a1"), even("c2", "web", "a2", "a3"), even("c3", "web", "a2", "a3")},
			}},
		},
		{
			ID: "topo-several-nodes", Needs: []spec.Feature{spec.ClusterIP, spec.Topology, spec.NodeHints},
			Given: append(clientsAndBackends(), Pod("c3", "n3"), Service("web", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{Slice("web", "web", "", 8080,
					SliceEndpoint{Host: "a1", ForNodes: []string{"n1", "n2"}}, SliceEndpoint{Host: "a2", ForNodes: []string{"n2"}},
					SliceEndpoint{Host: "a3", ForNodes: []string{"n3", "n1"}})},
				Rows: []spec.Row{even("c1", "web", "a1", "a3"), even("c2", "web", "a1", "a2"), only("c3", "web", "a3")},
			}},
		},
		{
			ID: "topo-distribution-removed", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("web", Prefer(corev1.ServiceTrafficDistributionPreferClose))),
			Steps: []spec.Step{
				{Name: "near", Rows: []spec.Row{only("c1", "web", "a1"), even("c2", "web", "a2", "a3")}},
				{Name: "everywhere", Do: []spec.Action{Edit("web", distribution(nil))},
					Rows: []spec.Row{even("c1", "web", "a1", "a2", "a3"), even("c2", "web", "a1", "a2", "a3")}},
				{Name: "near again", Do: []spec.Action{
					Edit("web", distribution(ptr.To(corev1.ServiceTrafficDistributionPreferClose)))},
					Rows: []spec.Row{only("c1", "web", "a1"), even("c2", "web", "a2", "a3")}},
			},
		},
		{
			ID: "topo-terminating", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("zone", Selecting("")), Service("hintless", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{
					Slice("zone", "zone", "", 8080, SliceEndpoint{Host: "a1", State: Ending, ForZones: east},
						SliceEndpoint{Host: "a2", State: Running, ForZones: west},
						SliceEndpoint{Host: "a3", State: Running, ForZones: west}),
					Slice("hintless", "hintless", "", 8080, SliceEndpoint{Host: "a1", State: Running, ForZones: east},
						SliceEndpoint{Host: "a2", State: Running, ForZones: west}, SliceEndpoint{Host: "a3", State: Ending}),
				},
				Rows: []spec.Row{even("c1", "zone", "a2", "a3"), only("c1", "hintless", "a1"), only("c2", "hintless", "a2")},
			}},
		},
		{
			ID: "topo-hint-lost", Needs: []spec.Feature{spec.ClusterIP, spec.Topology},
			Given: append(clientsAndBackends(), Service("web", Selecting(""))),
			Steps: []spec.Step{
				{Name: "hints for all", Do: []spec.Action{Slice("hinted", "web", "", 8080,
					SliceEndpoint{Host: "a1", ForZones: east}, SliceEndpoint{Host: "a2", ForZones: west})},
					Rows: []spec.Row{only("c1", "web", "a1"), only("c2", "web", "a2")}},
				{Name: "one without comes", Do: []spec.Action{Endpoints("hintless", "web", "", 8080, "a3")},
					Rows: []spec.Row{even("c1", "web", "a1", "a2", "a3"), even("c2", "web", "a1", "a2", "a3")}},
				{Name: "it goes", Do: []spec.Action{DeleteSlice("hintless")},
					Rows: []spec.Row{only("c1", "web", "a1"), only("c2", "web", "a2")}},
			},
		},
	}
}

func distribution(to *string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.TrafficDistribution = to }
}
