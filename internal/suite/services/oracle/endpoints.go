// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// endpoint is an address and port of a Service's port, with what the slices say of it.
type endpoint struct {
	addr         netip.AddrPort
	node         string
	ready        bool
	serving      bool
	terminating  bool
	zones, nodes []string // hints
	// doubtful: slices disagree about it.
	doubtful bool
}

// endpoints returns the endpoints of a claimed port, sorted by address and without duplicates. They are those of all
// slices in the Service's namespace that its label names, of the family, with a port of the same name and protocol.
func (s *State) endpoints(c claim, family corev1.IPFamily) []endpoint {
	var all []endpoint
	for _, slice := range s.EndpointSlices {
		if slice.Namespace != c.service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != c.service.Name ||
			string(slice.AddressType) != string(family) {
			continue
		}
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != c.port.Name || ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.port.Protocol ||
				p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				all = listed(all, e, uint16(*p.Port))
			}
		}
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return all
}

// listed adds an endpoint of a slice. "No semantics are defined for additional addresses beyond the first". A condition
// that is not given means ready, serving and not terminating.
func listed(all []endpoint, e discoveryv1.Endpoint, port uint16) []endpoint {
	if len(e.Addresses) == 0 {
		return all
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return all
	}
	next := endpoint{
		addr: netip.AddrPortFrom(addr, port), node: ptr.Deref(e.NodeName, ""), ready: ptr.Deref(e.Conditions.Ready, true),
		serving: ptr.Deref(e.Conditions.Serving, true), terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			next.zones = append(next.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			next.nodes = append(next.nodes, n.Name)
		}
	}
	i := slices.IndexFunc(all, func(o endpoint) bool { return o.addr == next.addr })
	if i < 0 {
		return append(all, next)
	}
	all[i].doubtful = all[i].doubtful || !all[i].equals(next)
	all[i].ready, all[i].serving = all[i].ready || next.ready, all[i].serving || next.serving
	all[i].terminating = all[i].terminating || next.terminating
	return all
}

// isMulticast reports whether no host can have the endpoint's address. The API refuses only multicast within a link.
func (e endpoint) isMulticast() bool { return e.addr.Addr().IsMulticast() }

func (e endpoint) equals(o endpoint) bool {
	return e.node == o.node && e.ready == o.ready && e.serving == o.serving && e.terminating == o.terminating &&
		slices.Equal(e.zones, o.zones) && slices.Equal(e.nodes, o.nodes)
}

// localTo returns the endpoints on a node. One about which slices disagree may be there.
func localTo(all []endpoint, node string) []endpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e endpoint) bool { return e.node != node && !e.doubtful })
}

// choice is the endpoints that may get connections.
type choice struct {
	sure, maybe []netip.AddrPort
	terminating bool
}

func (c choice) addrs() []netip.AddrPort { return union(c.sure, c.maybe) }

// usable returns the endpoints that get new connections: those that are ready, or, if none is, those that terminate and
// still serve.
func usable(all []endpoint) choice {
	var c choice
	for _, e := range all {
		switch {
		case e.doubtful && (e.ready || e.serving && e.terminating):
			c.maybe = append(c.maybe, e.addr)
		case e.ready:
			c.sure = append(c.sure, e.addr)
		}
	}
	if len(c.sure) > 0 {
		return c
	}
	for _, e := range all {
		if !e.doubtful && e.serving && e.terminating {
			c.sure = append(c.sure, e.addr)
		}
	}
	if c.terminating = len(c.sure) > 0; len(c.maybe) > 0 {
		c.sure, c.maybe = nil, union(c.sure, c.maybe)
	}
	return c
}

// hinted returns the endpoints that topology hints leave to a node, and the rules that this follows. exact is false if
// the implementation may choose among them otherwise. Hints apply if every ready endpoint has them, and one of them is
// for the node or, without hints for nodes, for its zone.
func (s *State) hinted(all []endpoint, node string) (near []endpoint, exact bool, rules []Rule) {
	var ready []endpoint
	doubtful := false
	for _, e := range all {
		if e.ready {
			ready, doubtful = append(ready, e), doubtful || e.doubtful
		}
	}
	forNode := func(e endpoint) bool { return slices.Contains(e.nodes, node) }
	zone := s.zoneOf(node)
	forZone := func(e endpoint) bool { return zone != "" && slices.Contains(e.zones, zone) }
	anyHint := slices.ContainsFunc(ready, func(e endpoint) bool { return len(e.nodes)+len(e.zones) > 0 })
	anyNode := slices.ContainsFunc(ready, func(e endpoint) bool { return len(e.nodes) > 0 })
	switch {
	case !anyHint:
		return all, true, nil
	case doubtful, !s.Offers.Topology, anyNode && !s.Offers.NodeHints:
		return all, false, []Rule{hintsOptional}
	case every(ready, func(e endpoint) bool { return len(e.nodes) > 0 }) && slices.ContainsFunc(ready, forNode):
		return only(ready, forNode), true, []Rule{hinted}
	case every(ready, func(e endpoint) bool { return len(e.zones) > 0 }) && slices.ContainsFunc(ready, forZone):
		return only(ready, forZone), true, []Rule{hinted}
	}
	return all, true, nil
}

func (s *State) zoneOf(node string) string {
	for _, n := range s.Nodes {
		if n.Name == node {
			return n.Labels[corev1.LabelTopologyZone]
		}
	}
	return ""
}

func every(es []endpoint, is func(endpoint) bool) bool {
	return !slices.ContainsFunc(es, func(e endpoint) bool { return !is(e) })
}

func only(es []endpoint, is func(endpoint) bool) []endpoint {
	return slices.DeleteFunc(slices.Clone(es), func(e endpoint) bool { return !is(e) })
}

// union returns the addresses of both lists, sorted and without duplicates.
func union(a, b []netip.AddrPort) []netip.AddrPort {
	all := slices.Concat(a, b)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
