// SPDX-License-Identifier: Apache-2.0

package external

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// etpLocalMasqueradeAll has no endpoint of another node: what passes the node must not be masqueraded.
func etpLocalMasqueradeAll() spec.Scenario {
	return spec.Scenario{
		ID: "etp-local-masquerade-all", Cluster: Configured(),
		Needs: []spec.Feature{
			spec.ClusterIP, spec.LoadBalancer, spec.NodePort, spec.ETPLocal, spec.SourceAddress, spec.MasqueradeAll,
		},
		Given: []store.Object{Pod("c1", "n1"), Backend("b1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{{
			Do: IngressViaN1("web", "203.0.113.130", "2001:db8:113::130"),
			Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"b1"}, SeenAs: spec.ClientAddr()},
				{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"b1"}, SeenAs: spec.ClientAddr()},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"b1"}, SeenAs: spec.NodeAddr("n1")},
			},
		}},
	}
}
