// SPDX-License-Identifier: Apache-2.0

// Package nodeaddr finds the addresses of a node, and those of them that serve NodePorts.
package nodeaddr

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

var loopback = map[lab.Family]netip.Prefix{
	lab.V4: netip.MustParsePrefix("127.0.0.0/8"),
	lab.V6: netip.MustParsePrefix("::1/128"),
}

// Loopback returns the loopback range.
func Loopback(f lab.Family) netip.Prefix { return loopback[f] }

// Domain returns the kernel's number of a family, AF_INET or AF_INET6. netfilter uses the same numbers.
func Domain(f lab.Family) int {
	if f == lab.V6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Unspecified returns the address that stands for all addresses of a family.
func Unspecified(f lab.Family) netip.Addr {
	if f == lab.V6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Network returns the name of a transport over a family in package net, such as "tcp4".
func Network(transport string, f lab.Family) string { return transport + f.String()[1:] }

// OfFamily returns the ranges of a family.
func OfFamily(all []netip.Prefix, f lab.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return lab.FamilyOf(p.Addr()) != f })
}

// FirstOfFamily returns the first range of a family, the zero Prefix if there is none.
func FirstOfFamily(all []netip.Prefix, f lab.Family) netip.Prefix {
	return append(OfFamily(all, f), netip.Prefix{})[0]
}

// NodePorts returns the local addresses that serve NodePorts. Nil means all, later ones included.
func NodePorts(c spec.ProxyConfig, f lab.Family, local []netip.Addr) []netip.Addr {
	ranges := limits(c, f)
	if ranges == nil {
		return nil
	}
	out := []netip.Addr{}
	for _, a := range local {
		reachable := !a.IsLoopback() || f == lab.V4 && ServesLocalhost(c)
		if reachable && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	return out
}

// ServesLocalhost reports whether 127.0.0.1 serves NodePorts.
func ServesLocalhost(c spec.ProxyConfig) bool {
	if c.NoLocalhostNodePorts {
		return false
	}
	ranges := limits(c, lab.V4)
	return ranges == nil || slices.ContainsFunc(ranges, loopback[lab.V4].Overlaps)
}

// limits returns the configured NodePort ranges of a family, nil if they do not limit anything. A family without ranges
// serves no NodePorts if the other one has some.
func limits(c spec.ProxyConfig, f lab.Family) []netip.Prefix {
	if len(c.NodePortAddresses) == 0 {
		return nil
	}
	all := OfFamily(c.NodePortAddresses, f)
	if slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return nil
	}
	return all
}

// local returns the sorted addresses of a namespace, loopback included. It leaves out those of one device, and
// link-local ones, because several devices can have the same.
func local(ns *netns.NS, f lab.Family, without int) ([]netip.Addr, error) {
	list, err := netns.List(func() ([]netlink.Addr, error) { return ns.Netlink().AddrList(nil, Domain(f)) })
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
