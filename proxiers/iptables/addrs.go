package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// ofFamily is the first range of a family, the zero Prefix if there is none.
func ofFamily(all []netip.Prefix, f lab.Family) netip.Prefix {
	for _, p := range all {
		if lab.FamilyOf(p.Addr()) == f {
			return p
		}
	}
	return netip.Prefix{}
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

// nodePortAddrs are the local addresses that serve NodePorts; nil means that all do.
func nodePortAddrs(c spec.ProxyConfig, f lab.Family, local []netip.Addr) []netip.Addr {
	ranges := limits(c, f)
	if ranges == nil {
		return nil
	}
	out := []netip.Addr{}
	for _, a := range local {
		if a.IsLoopback() && (f == lab.V6 || !servesLocalhost(c)) {
			continue
		}
		if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	return out
}

// servesLocalhost says whether 127.0.0.1 serves NodePorts.
func servesLocalhost(c spec.ProxyConfig) bool {
	if c.NoLocalhostNodePorts {
		return false
	}
	ranges := limits(c, lab.V4)
	return ranges == nil || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Overlaps(loopback[lab.V4]) })
}

// localAddrs asks the kernel for the addresses of a namespace, sorted. Link-local IPv6 addresses are left out: the same
// one can be on several devices.
func localAddrs(ns *netns.NS, f lab.Family) ([]netip.Addr, error) {
	family := netlink.FAMILY_V4
	if f == lab.V6 {
		family = netlink.FAMILY_V6
	}
	for {
		list, err := ns.Netlink().AddrList(nil, family)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: list addresses: %w", ns.Name(), err)
		}
		var out []netip.Addr
		for _, l := range list {
			if a, ok := netip.AddrFromSlice(l.IP); ok && !a.Unmap().IsLinkLocalUnicast() {
				out = append(out, a.Unmap())
			}
		}
		slices.SortFunc(out, netip.Addr.Compare)
		return slices.Compact(out), nil
	}
}

// tracksLiberally says whether connection tracking is told to take out-of-window TCP segments for valid.
func tracksLiberally(ns *netns.NS) (bool, error) {
	v, err := ns.Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // connection tracking is not loaded yet, and starts with 0
	}
	return v == "1", err
}
