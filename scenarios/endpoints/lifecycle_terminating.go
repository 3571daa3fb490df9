// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// terminatingCluster keeps all pods alive: those that must not be chosen would answer.
func terminatingCluster() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-terminating-fallback-cluster",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.TerminatingFallback},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web", LoadBalancer()),
		},
		Steps: []spec.Step{
			{
				Name: "a1 serves to its end, a2 does not, a3 is not ready",
				Do: []spec.Action{
					Ingress("web", "203.0.113.201", "2001:db8:113::201"), RouteVia("client", "203.0.113.201", "2001:db8:113::201",
						"n1"),
					Terminate("a1", true), Terminate("a2", false), Readiness("a3", false),
				},
				Rows: everyFrontend("a1"),
			},
			{Name: "a3 is ready", Do: []spec.Action{Readiness("a3", true)}, Rows: everyFrontend("a3")},
		},
	}
}

// everyFrontend wants all connections to every frontend of the Service served by one pod.
func everyFrontend(by string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, By: []string{by}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: lifecycleDraws, By: []string{by}},
		{From: "client", To: spec.IngressOf("web", 80), Times: lifecycleDraws, By: []string{by}},
	}
}

func terminatingLocal() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-terminating-fallback-local",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal, spec.TerminatingFallback},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("c2", "n2"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("web", NodePort(), ETPLocal(), ITPLocal()),
		},
		Steps: []spec.Step{
			{Name: "a1 terminates and serves", Do: []spec.Action{Terminate("a1", true)},
				Rows: append(onItsNode("n1", "c1", "a1"), append(
					onItsNode("n2", "c2", "a2"),
					spec.Row{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
					spec.Row{From: "c3", To: spec.ClusterIPOf("web", 80), Want: spec.Silence},
				)...)},
			{
				Name: "a ready one joins a1's node", Do: []spec.Action{Apply(Backend("b1", "n1"))},
				Rows: onItsNode("n1", "c1", "b1"),
			},
			{Name: "a1 and b1 no longer serve", Do: []spec.Action{Readiness("b1", false), Terminate("a1", false)},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.Silence},
				}},
		},
	}
}

func onItsNode(node, client, by string) []spec.Row {
	return []spec.Row{
		{From: "client", To: spec.NodePortAt(node, "web", 80), Times: lifecycleDraws, By: []string{by}},
		{From: client, To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, By: []string{by}},
	}
}
