// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// lateListedAddress is nodeport-late-address where an administrator limits NodePorts to ranges: the new address is in
// one of them.
func lateListedAddress() spec.Scenario {
	const nodePort = 30008
	return spec.Scenario{
		ID: "nodeport-late-listed-address", NodePorts: []uint16{nodePort}, Cluster: OnPrimaryAddresses(),
		Needs: []spec.Feature{spec.NodePort, spec.NodePortAddresses},
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

// oneFamily limits NodePorts to ranges of IPv6: no address of IPv4 is inside of them.
func oneFamily() spec.Scenario {
	nodePort := spec.NodePortAt("n1", "web", 80)
	refuse := func(family lab.Family, to spec.Target) []spec.Row {
		return FromEach(spec.Row{To: to, Family: family, Want: spec.Refused}, "client", "c1", "n1")
	}
	return spec.Scenario{
		ID: "nodeport-addresses-one-family", Families: dualstackBoth,
		Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}, Proxy: spec.ProxyConfig{
			NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("fd00:7::10/124")},
		}},
		Needs: []spec.Feature{spec.NodePort, spec.NodePortAddresses},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{
			{Name: "the family with a range", Rows: append(
				FromEach(spec.Row{To: nodePort, Family: lab.V6, Servers: []string{"a2"}}, "client", "c1", "n1"),
				refuse(lab.V6, nodePort.AtAddr(spec.Secondary))...)},
			{Name: "the family without", Rows: append(refuse(lab.V4, nodePort),
				refuse(lab.V4, nodePort.AtAddr(spec.Secondary))...)},
		},
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

// secondUplink has a client that reaches n1 by a device of its own. The Services come once the device is there.
func secondUplink() spec.Scenario {
	const near, far = 30032, 30033
	n1, client := ExternalIP(216), ExternalIP(217)
	to := func(port uint16, server string) []spec.Row {
		at := n1
		at.Port = port
		return []spec.Row{
			{From: "client", Source: client, To: at, Servers: []string{server}},
			{From: "client", To: spec.HostAt("n1", port), Servers: []string{server}},
			{From: "n1", To: at, Servers: []string{server}},
		}
	}
	return spec.Scenario{
		ID: "nodeport-second-uplink", NodePorts: []uint16{near, far},
		Needs: []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
		Given: []store.Object{Backend("b1", "n1", App("near")), Backend("a2", "n2", App("far"))},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Uplink("n1", n1, client),
				Apply(Service("near", NodePort(), NodePorts(near))),
				Apply(Service("far", NodePort(), NodePorts(far))),
			},
			Rows: append(to(near, "b1"), to(far, "a2")...),
		}},
	}
}
