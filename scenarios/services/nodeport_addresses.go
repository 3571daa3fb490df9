// SPDX-License-Identifier: Apache-2.0

package services

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// lateListedAddress is nodeport-late-address where an administrator limits NodePorts to ranges: the new address is in
// one of them.
func lateListedAddress() spec.Scenario {
	const nodePort = 30161
	return spec.Scenario{
		ID: "nodeport-late-listed-address", NodePorts: []uint16{nodePort}, Cluster: OnPrimaryAddresses(),
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Backend("a2", "n2"), nodeportAt("web", nodePort)},
		Steps: []spec.Step{{
			Do: []spec.Action{
				RouteVia("client", "192.168.7.9", "fd00:7::19", "n1"), AddAddress("n1", "192.168.7.9", "fd00:7::19"),
				Apply(Service("other", Selecting("web"))),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.AddrAt("192.168.7.9", "fd00:7::19", nodePort), Servers: []string{"a2"}},
				{From: "client", To: spec.HostAt("n1", nodePort), Servers: []string{"a2"}},
				{From: "client", To: spec.HostAt("n1", nodePort).AtAddr(spec.Secondary), Want: spec.Refused},
			},
		}},
	}
}

// onPrimary is nodeport-address-filter where an administrator names the primary addresses without their ranges.
func onPrimary() spec.Scenario {
	nodePort := spec.NodePortAt("n1", "web", 80)
	return spec.Scenario{
		ID: "nodeport-primary", Cluster: Configured(), Needs: []spec.Feature{spec.NodePort, spec.PrimaryNodePorts},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: append(FromEach(spec.Row{To: nodePort, Servers: []string{"a2"}}, "client", "c1", "n1"),
			FromEach(spec.Row{To: nodePort.AtAddr(spec.Secondary), Want: spec.Refused}, "client", "c1", "n1")...)}},
	}
}
