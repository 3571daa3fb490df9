// SPDX-License-Identifier: Apache-2.0

package services

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// hostPort is the port that three pods have on the same node.
const hostPort = 30050

// hostPorts has a cluster of its own, for its rules.
func hostPorts() spec.Scenario {
	return spec.Scenario{
		ID: "pb-hostport-coexistence", NodePorts: []uint16{hostPort, 30051}, Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{
			Pod("p1", "n1", TCP(8080)), Pod("p2", "n1", TCP(8080)), Pod("p3", "n1", UDP(8080)), Backend("a2", "n2"), portbindingAt(30051),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Portmap("n1"), MapPort(spec.HostAt("n1", hostPort), "tcp", "p1"),
				MapPort(spec.HostAt("n1", hostPort).On(spec.Secondary), "tcp", "p2"),
				MapPort(spec.HostAt("n1", hostPort), "udp", "p3"),
				Apply(Service("later", Selecting("web"), NodePort())), // which makes proxiers sync after the plugin
			},
			Rows: []spec.Row{
				{From: "client", To: spec.HostAt("n1", hostPort), Times: 3, By: []string{"p1"}},
				{From: "client", To: spec.HostAt("n1", hostPort).On(spec.Secondary), Times: 3, By: []string{"p2"}},
				{From: "client", To: spec.HostAt("n1", hostPort), Proto: "udp", Times: 3, By: []string{"p3"}},
				{From: "client", To: spec.HostAt("n2", hostPort), Want: spec.Refused},
				{From: "client", To: spec.HostAt("n1", 30051), Times: 3, By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "later", 80), Times: 3, By: []string{"a2"}},
			},
		}},
	}
}
