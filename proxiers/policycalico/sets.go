// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// use adds a set and returns a match of its entries.
func (d *desired) use(s set, parts string) xtables.Part {
	d.sets[s.Name] = s
	return xtables.InSet(s.Name, parts)
}

// peer returns a match of the peer. It reports false if the peer has no address in the family.
func (d *desired) peer(ip lab.Family, at string, p policy.Peer) (xtables.Part, bool) {
	var entries []ipset.Entry
	switch {
	case p.Any:
		return "", true
	case len(p.Blocks) > 0:
		entries = ofBlocks(ip, p)
	default:
		for _, a := range p.Addrs {
			if lab.FamilyOf(a) == ip {
				entries = append(entries, ipset.Entry{Range: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	if len(entries) == 0 {
		return "", false
	}
	return d.use(newSet(ip, ipset.Net, entries), at), true
}

// ofBlocks returns the entries for blocks without their exceptions. The longest prefix decides.
func ofBlocks(ip lab.Family, p policy.Peer) []ipset.Entry {
	blocks, excepts := nodeaddr.OfFamily(p.Blocks, ip), nodeaddr.OfFamily(p.Except, ip)
	if len(blocks) == 0 {
		return nil
	}
	var entries []ipset.Entry
	// A set holds a prefix once. Exceptions come first, because one as large as its block leaves nothing of it.
	seen := map[netip.Prefix]bool{}
	for i, prefix := range slices.Concat(excepts, blocks) {
		for _, half := range halves(prefix) {
			if !seen[half] {
				seen[half] = true
				entries = append(entries, ipset.Entry{Range: half, NoMatch: i < len(excepts)})
			}
		}
	}
	return entries
}

// halves returns the two halves of the range of all addresses, which is no valid entry, and any other prefix as it is.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	upper := p.Addr().AsSlice()
	upper[0] = 0x80
	a, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(a, 1)}
}

// named returns matches of the destinations of named ports.
func (d *desired) named(ip lab.Family, proto corev1.Protocol, all []netip.AddrPort) []xtables.Part {
	var entries []ipset.Entry
	for _, n := range all {
		if lab.FamilyOf(n.Addr()) == ip {
			entries = append(entries, ipset.Entry{Addr: n.Addr(), Proto: ipset.Protocols[proto], Port: n.Port()})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return []xtables.Part{d.use(newSet(ip, ipset.IPPort, entries), "dst,dst")}
}
