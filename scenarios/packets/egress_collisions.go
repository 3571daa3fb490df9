// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// Source ports beyond those that clients take by themselves.
const (
	sharedPort = 61401
	firstBurst = 61410
)

// burst is how many pairs of clients begin at the same moment.
const burst = 24

// portCollisions lets two machines use the same source ports. In the burst a datagram is not sent again: one that is
// lost, because its node gave it a port that another flow got at the same time, is seen.
func portCollisions() spec.Scenario {
	return spec.Scenario{
		ID:    "masq-port-collisions",
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{
			Backend("a2", "n2", UDP(8080)), Service("web", Port(80, 8080), UDPPort(80, 8080), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "two clients with one port", Rows: sameSourcePort()},
			{Name: "both go on", Rows: sameSourcePort()},
			{Name: "many at once", Rows: manyAtOnce()},
		},
	}
}

func sameSourcePort() []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		for _, client := range []string{"client", "router"} {
			rows = append(rows, spec.Row{
				From: client, To: spec.NodePortAt("n1", "web", 80), Proto: proto, SourcePort: sharedPort, Conn: client + "/" +
					proto,
				By: []string{"a2"}, SeenAs: spec.NodeAddr("n1"),
			})
		}
	}
	return rows
}

func manyAtOnce() []spec.Row {
	var rows []spec.Row
	for i := range uint16(burst) {
		for _, client := range []string{"client", "router"} {
			rows = append(rows, spec.Row{
				From: client, To: spec.NodePortAt("n1", "web", 80), Proto: "udp", SourcePort: firstBurst + i,
				By: []string{"a2"}, SeenAs: spec.NodeAddr("n1"),
			})
		}
	}
	return rows
}
