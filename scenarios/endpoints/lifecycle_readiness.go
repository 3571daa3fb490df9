// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// draws is how many connections find an endpoint that must not be chosen, if it is one of two drawn with equal chances:
// the chance to miss it is 2^-22, below 1e-6.
const lifecycleDraws = 22

// scaleToZeroAndBack takes endpoints away by their readiness: their pods run on and would answer.
func scaleToZeroAndBack() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-scale-to-zero-and-back",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"), Service("web", Port(80, 8080), UDPPort(80, 8080), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "two endpoints", Rows: everyWay(spec.Row{By: []string{"a1", "a2"}})},
			{Name: "none", Do: []spec.Action{Readiness("a1", false), Readiness("a2", false)},
				Rows: Unserved(everyWay(spec.Row{})...)},
			{Name: "one again", Do: []spec.Action{Readiness("a2", true)}, Rows: everyWay(spec.Row{By: []string{"a2"}, Times: 3})},
		},
	}
}

// everyWay is a row for each protocol and for the ClusterIP, from a pod and a node, and the NodePort.
func everyWay(r spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		r.Proto = proto
		r.From, r.To = "c1", spec.ClusterIPOf("web", 80)
		rows = append(rows, r)
		r.From = "n1"
		rows = append(rows, r)
		r.From, r.To = "client", spec.NodePortAt("n1", "web", 80)
		rows = append(rows, r)
	}
	return rows
}

func notReadyExcluded() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-not-ready-excluded",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"),
			Service("web", Port(80, 8080), UDPPort(80, 8080))},
		Steps: []spec.Step{
			{Name: "a1 is not ready", Do: []spec.Action{Readiness("a1", false)}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, By: []string{"a2"}},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Times: lifecycleDraws, By: []string{"a2"}},
			}},
			{Name: "none is", Do: []spec.Action{Readiness("a2", false)}, Rows: Unserved(
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3},
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Times: 3},
			)},
		},
	}
}

func publishNotReady() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-publish-not-ready",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"),
			Service("web", PublishNotReady())},
		Steps: []spec.Step{
			{
				Name: "one ready, one not, one terminating", Do: []spec.Action{Readiness("a2", false), Terminate("a3", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1", "a2", "a3"}, Even: true}},
			},
			{
				Name: "the terminating one alone", Do: []spec.Action{Delete("Pod", "a1"), Delete("Pod", "a2")},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a3"}}},
			},
		},
	}
}
