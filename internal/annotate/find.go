// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Found is what a text says about Services.
type Found struct {
	services []store.Key
	notes    []string
}

// String returns the notes, and else the names of the Services.
func (f Found) String() string {
	if len(f.notes) == 0 {
		var names []string
		for _, s := range f.services {
			names = append(names, s.String())
		}
		return strings.Join(names, ", ")
	}
	return strings.Join(f.notes, "; ")
}

// Concerns reports whether the text concerns a Service: it names that Service, or none at all.
func (f Found) Concerns(s store.Key) bool {
	return len(f.services) == 0 || slices.Contains(f.services, s)
}

const chainPrefix = `(?:service|endpoint|external|firewall)-[A-Z2-7]{8}-`

var (
	// ofService matches the name of a chain that kube-proxy makes for a Service in nftables, with a hash.
	ofService = regexp.MustCompile(`\b` + chainPrefix)
	// named matches NAMESPACE/NAME, maybe in the name of such a chain.
	named = regexp.MustCompile(`(?:\b` + chainPrefix + `)?([a-z0-9][a-z0-9-]*)/([a-z0-9][a-z0-9-]*)`)
	// numbered matches destination ports, and lists of them.
	numbered = regexp.MustCompile(`dports? (\{[^}]*\}|\S+)`)
	keyed    = regexp.MustCompile(`\. (\d+)\b|,(?:tcp|udp|sctp):(\d+)`)
	protocol = regexp.MustCompile(`\b(tcp|udp|sctp)\b`)
	digits   = regexp.MustCompile(`\d+`)
)

// Find returns what a rule, an element of a set or a virtual server is about.
func (b *Book) Find(text string) Found { return b.find(text, "") }

// find is Find for a rule of a chain, which can be one of kube-proxy that has the name of a Service.
func (b *Book) find(text, chain string) Found {
	var f Found
	names := text
	if ofService.MatchString(chain) {
		names = chain + " " + text
	}
	for _, m := range named.FindAllStringSubmatch(names, -1) {
		if key := (store.Key{Namespace: m[1], Name: m[2]}); b.services[key] {
			f.add(key, "")
		}
	}
	sure := len(f.services) > 0 // names are better evidence than addresses
	addresses, ports := read(strings.ReplaceAll(text, `"`, " "))
	// Comments and sockets have a colon. Remarks about chains and sets are in their headings.
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(` ",`, r) }) {
		if remark := b.remarks[word]; remark != "" && strings.Contains(word, ":") {
			f.notes = append(f.notes, remark)
			sure = true
		}
	}
	protocols := protocol.FindAllString(quoted.ReplaceAllString(text, ""), -1)
	for _, r := range b.roles(addresses, ports) {
		if len(protocols) > 0 && r.port != nil && !slices.Contains(protocols, strings.ToLower(string(r.port.Protocol))) {
			continue
		}
		if !sure || slices.Contains(f.services, r.service) {
			f.add(r.service, r.String())
		}
	}
	for _, a := range addresses {
		b.address(&f, a, ports, len(f.services) > 0)
	}
	return f
}

func (f *Found) add(s store.Key, note string) {
	if !slices.Contains(f.services, s) {
		f.services = append(f.services, s)
	}
	if note != "" && !slices.Contains(f.notes, note) {
		f.notes = append(f.notes, note)
	}
}

// roles returns what the addresses and ports are to Services: their own addresses, else ports of nodes.
func (b *Book) roles(addresses []netip.AddrPort, ports []uint16) (roles []role) {
	for _, a := range addresses {
		for _, x := range b.frontends[a.Addr()] {
			if a.Port() == x.number || a.Port() == 0 && (len(ports) == 0 || slices.Contains(ports, x.number)) {
				roles = append(roles, x.role)
			}
		}
	}
	if len(roles) > 0 {
		return roles
	}
	for _, a := range addresses {
		ports = append(ports, a.Port())
	}
	return b.ofPorts(ports)
}

// ofPorts returns the Services that have these ports on every node.
func (b *Book) ofPorts(ports []uint16) (roles []role) {
	for _, p := range ports {
		roles = append(roles, b.nodePorts[p]...)
	}
	return roles
}

func join(roles []role) string {
	var notes []string
	for _, r := range roles {
		notes = append(notes, r.String())
	}
	return strings.Join(notes, "; ")
}

// address adds what is known of an address that is no frontend: an endpoint, or a machine or pod.
func (b *Book) address(f *Found, a netip.AddrPort, ports []uint16, sure bool) {
	if len(b.frontends[a.Addr()]) > 0 {
		return
	}
	who := b.names[a.Addr()]
	var of []store.Key
	for _, e := range b.endpoints[a.Addr()] {
		known := a.Port() == e.number || a.Port() == 0 && (len(ports) == 0 || slices.Contains(ports, e.number))
		if known && !slices.Contains(of, e.service) && (!sure || slices.Contains(f.services, e.service)) {
			of = append(of, e.service)
		}
	}
	slices.SortFunc(of, func(a, b store.Key) int { return cmp.Compare(a.String(), b.String()) })
	if len(of) == 0 {
		if who != "" {
			f.note(who)
		}
		return
	}
	for _, s := range of {
		f.add(s, fmt.Sprintf("%s: endpoint %s", s, cmp.Or(who, a.Addr().String())))
	}
}

func (f *Found) note(text string) {
	if !slices.Contains(f.notes, text) {
		f.notes = append(f.notes, text)
	}
}

// read returns the single addresses in a text, with their ports if these are written together, and the destination
// ports that stand alone.
func read(text string) (addresses []netip.AddrPort, ports []uint16) {
	// Comments and sockets have a colon. Remarks about chains and sets are in their headings.
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,{}", r) }) {
		if at, err := netip.ParseAddrPort(word); err == nil {
			addresses = append(addresses, at)
		} else if a, err := netip.ParseAddr(word); err == nil {
			addresses = append(addresses, netip.AddrPortFrom(a, 0))
		} else if p, err := netip.ParsePrefix(word); err == nil && p.IsSingleIP() {
			addresses = append(addresses, netip.AddrPortFrom(p.Addr(), 0))
		}
	}
	for _, m := range numbered.FindAllStringSubmatch(text, -1) {
		for _, n := range digits.FindAllString(m[1], -1) {
			ports = appendPort(ports, n)
		}
	}
	for _, m := range keyed.FindAllStringSubmatch(text, -1) {
		ports = appendPort(ports, m[1]+m[2])
	}
	return addresses, ports
}

func appendPort(ports []uint16, text string) []uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || slices.Contains(ports, uint16(n)) {
		return ports
	}
	return append(ports, uint16(n))
}
