// SPDX-License-Identifier: Apache-2.0

// Package nodeaddr knows the addresses of a node as proxiers need them: its own ones, and which of them serve
// NodePorts.
package nodeaddr

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

var loopback = map[lab.Family]netip.Prefix{
	lab.V4: netip.MustParsePrefix("127.0.0.0/8"),
	lab.V6: netip.MustParsePrefix("::1/128"),
}

// Loopback is the range of addresses that never leave a host.
func Loopback(f lab.Family) netip.Prefix { return loopback[f] }

// OfFamily is the first range of a family, the zero Prefix if there is none.
func OfFamily(all []netip.Prefix, f lab.Family) netip.Prefix {
	for _, p := range all {
		if lab.FamilyOf(p.Addr()) == f {
			return p
		}
	}
	return netip.Prefix{}
}

// NodePorts picks the local addresses that serve NodePorts; nil means that all do, whatever there are.
func NodePorts(c spec.ProxyConfig, f lab.Family, local []netip.Addr) []netip.Addr {
	ranges := limits(c, f)
	if ranges == nil {
		return nil
	}
	out := []netip.Addr{}
	for _, a := range local {
		if a.IsLoopback() && (f == lab.V6 || !ServesLocalhost(c)) {
			continue
		}
		if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	return out
}

// ServesLocalhost says whether 127.0.0.1 is to serve NodePorts.
func ServesLocalhost(c spec.ProxyConfig) bool {
	if c.NoLocalhostNodePorts {
		return false
	}
	ranges := limits(c, lab.V4)
	return ranges == nil || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Overlaps(loopback[lab.V4]) })
}

// limits are the configured NodePort ranges of a family. None, or one that covers everything, is no limit.
func limits(c spec.ProxyConfig, f lab.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.NodePortAddresses {
		if lab.FamilyOf(p.Addr()) != f {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p)
	}
	return out
}

// local asks the kernel for the addresses of a namespace, loopback included, in order. Link-local ones are left out:
// the same address can be on several devices. So are those of one device.
func local(ns *netns.NS, f lab.Family, without int) ([]netip.Addr, error) {
	family := netlink.FAMILY_V4
	if f == lab.V6 {
		family = netlink.FAMILY_V6
	}
	list, err := netns.List(func() ([]netlink.Addr, error) { return ns.Netlink().AddrList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("%s: list addresses: %w", ns.Name(), err)
	}
	var out []netip.Addr
	for _, l := range list {
		if a, ok := netip.AddrFromSlice(l.IP); ok && l.LinkIndex != without && !a.Unmap().IsLinkLocalUnicast() {
			out = append(out, a.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}
