// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// udp returns the scenarios of UDP Services.
func udp() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "udp-clusterip-and-nodeport",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a1", "n1", App("dns"), UDP(5353)), Pod("a2", "n2", App("dns"), UDP(5353)),
				Service("dns", UDPPort(53, 5353), NodePort()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", By: []string{"a1", "a2"}, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "dns", 53), Proto: "udp", By: []string{"a1", "a2"}, Even: true},
			}}},
		},
		{
			ID:    "udp-flow-stickiness",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a1", "n1", App("dns"), UDP(5353)), Pod("a2", "n2", App("dns"), UDP(5353)),
				Service("dns", UDPPort(53, 5353), NodePort()),
			},
			Steps: []spec.Step{
				{Name: "flows begin", Rows: flows(1)},
				{Name: "flows go on", Rows: append(flows(11),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", By: []string{"a1", "a2"}, Even: true},
				)},
			},
		},
		unconnectedSocket(),
		largeAndFragmented(),
		errorsTranslated(),
	}
}

// flows are two flows each from a pod, a node and outside. That a flow which is led anew with each datagram stays with
// one of two pods for twelve has a chance of 2^-11, and that all six do one far below 1e-6.
func flows(times int) []spec.Row {
	var rows []spec.Row
	for i := range 2 {
		for _, r := range []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("dns", 53)},
			{From: "n1", To: spec.ClusterIPOf("dns", 53)},
			{From: "client", To: spec.NodePortAt("n1", "dns", 53)},
		} {
			r.Proto, r.Conn, r.Times, r.By = "udp", fmt.Sprintf("%s #%d", r.From, i), times, []string{"a1", "a2"}
			rows = append(rows, r)
		}
	}
	return rows
}
