// SPDX-License-Identifier: Apache-2.0

package policy

import "net/netip"

// Sample returns a state for probes that uses all features, with a pod of the address.
func Sample(addr netip.Addr) *State {
	whole := netip.PrefixFrom(addr, 0).Masked()
	half := netip.PrefixFrom(addr, 1).Masked()
	allows := []Allow{
		{Peer: Peer{Any: true}, Protocol: "UDP"},
		{Peer: Peer{Addrs: []netip.Addr{addr}}, Protocol: "TCP", Ports: []PortRange{{80, 80}, {82, 90}}},
		{Peer: Peer{Blocks: []netip.Prefix{whole}, Except: []netip.Prefix{half}}, Protocol: "SCTP",
			Named: []netip.AddrPort{netip.AddrPortFrom(addr, 80)}},
	}
	s := &State{}
	p := &Pod{Namespace: "probe", Name: "probe", Account: "probe", Addrs: []netip.Addr{addr}}
	for _, d := range []Direction{Ingress, Egress} {
		by := &Policy{Direction: d, Namespace: "probe", Name: "probe", Allows: allows}
		s.Policies = append(s.Policies, by)
		p.isolate(by)
	}
	s.Pods = []*Pod{p}
	return s
}
