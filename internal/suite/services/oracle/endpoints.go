// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// condition is what one slice says of an endpoint.
type condition struct {
	node                        string
	ready, serving, terminating bool
	zones, nodes                []string // hints
}

func isReady(c condition) bool { return c.ready }

func drains(c condition) bool { return c.serving && c.terminating }

// endpoint is an address and port of a Service's port.
type endpoint struct {
	addr netip.AddrPort
	// said is what each slice says that lists the endpoint. Which of them counts is not defined.
	said []condition
	// elsewhere: it may be on another node than the one that is asked about.
	elsewhere bool
	// published: its Service wants to have it published although it is not ready.
	published bool
}

// always reports whether all slices that list the endpoint say something of it, and ever whether one does.
func (e endpoint) always(is func(condition) bool) bool {
	return !slices.ContainsFunc(e.said, func(c condition) bool { return !is(c) })
}

func (e endpoint) ever(is func(condition) bool) bool { return slices.ContainsFunc(e.said, is) }

// mayBeReady reports whether an implementation may take the endpoint for ready.
func (e endpoint) mayBeReady() bool { return e.published || e.ever(isReady) }

// endpoints returns the endpoints of a claimed port, sorted by address and without duplicates. They are those of all
// slices in the Service's namespace that its label names, of the family, with a port of the same name and protocol.
func (s *State) endpoints(c claim, family corev1.IPFamily) []endpoint {
	var all []endpoint
	for _, slice := range s.EndpointSlices {
		if !c.listedIn(slice, family) {
			continue
		}
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != c.port.Name || ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.port.Protocol ||
				p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				all = listed(all, e, uint16(*p.Port), c.service.Spec.PublishNotReadyAddresses)
			}
		}
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return all
}

// otherProtocol and unrestricted say what is odd about a port of a slice that has the claimed port's name: it has
// another protocol, or no number.
func (c claim) otherProtocol(p discoveryv1.EndpointPort) bool {
	return ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.port.Protocol
}

func (c claim) unrestricted(p discoveryv1.EndpointPort) bool { return p.Port == nil }

// anyPort reports whether a slice has a port of the claimed port's name for which is returns true.
func (s *State) anyPort(c claim, family corev1.IPFamily, is func(discoveryv1.EndpointPort) bool) bool {
	return slices.ContainsFunc(s.EndpointSlices, func(slice *discoveryv1.EndpointSlice) bool {
		return c.listedIn(slice, family) && slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Name, "") == c.port.Name && is(p)
		})
	})
}

// anyHandedOver reports whether a slice of the claim's Service has the label that hands Services to other proxiers,
// which the Service itself has not.
func (s *State) anyHandedOver(c claim, family corev1.IPFamily) bool {
	return slices.ContainsFunc(s.EndpointSlices, func(slice *discoveryv1.EndpointSlice) bool {
		_, labelled := slice.Labels[labelProxyName]
		return labelled && c.listedIn(slice, family)
	})
}

// listedIn reports whether a slice is one of the claim's Service, for a family.
func (c claim) listedIn(slice *discoveryv1.EndpointSlice, family corev1.IPFamily) bool {
	return slice.Namespace == c.service.Namespace && slice.Labels[discoveryv1.LabelServiceName] == c.service.Name &&
		string(slice.AddressType) == string(family)
}

// listed adds an endpoint of a slice. "No semantics are defined for additional addresses beyond the first". A condition
// that is not given means ready, serving and not terminating.
func listed(all []endpoint, e discoveryv1.Endpoint, port uint16, published bool) []endpoint {
	if len(e.Addresses) == 0 {
		return all
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return all
	}
	said := condition{
		node: ptr.Deref(e.NodeName, ""), ready: ptr.Deref(e.Conditions.Ready, true),
		serving: ptr.Deref(e.Conditions.Serving, true), terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			said.zones = append(said.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			said.nodes = append(said.nodes, n.Name)
		}
	}
	at := netip.AddrPortFrom(addr, port)
	i := slices.IndexFunc(all, func(o endpoint) bool { return o.addr == at })
	if i < 0 {
		i, all = len(all), append(all, endpoint{addr: at, published: published})
	}
	all[i].said = append(all[i].said, said)
	return all
}

// isMulticast reports whether no host can have the endpoint's address. The API refuses only multicast within a link.
func (e endpoint) isMulticast() bool { return e.addr.Addr().IsMulticast() }

// localTo returns the endpoints on a node, those included that only some slices place there.
func localTo(all []endpoint, node string) []endpoint {
	there := func(c condition) bool { return c.node == node }
	local := only(all, func(e endpoint) bool { return e.ever(there) })
	for i, e := range local {
		local[i].elsewhere = !e.always(there)
	}
	return local
}

// choice is the endpoints that may get connections. sure are those that get them however an implementation reads the
// slices, maybe the others, for the reason why. certain: one of them gets each connection, however it reads the slices.
type choice struct {
	sure, maybe []netip.AddrPort
	why         Rule
	certain     bool
	terminating bool
}

func (c choice) addrs() []netip.AddrPort { return union(c.sure, c.maybe) }

func (c *choice) doubt(e endpoint) {
	c.maybe = append(c.maybe, e.addr)
	if c.why = duplicated; e.published && len(e.said) == 1 {
		c.why = publishedNotReady
	}
}

// usable returns the endpoints that get new connections: those that are ready, or, if none is, those that terminate and
// still serve.
func usable(all []endpoint) choice {
	var c choice
	for _, e := range all {
		switch {
		case e.always(isReady) && !e.elsewhere:
			c.sure = append(c.sure, e.addr)
		case e.mayBeReady():
			c.doubt(e)
		}
	}
	c.certain = slices.ContainsFunc(all, func(e endpoint) bool {
		return !e.elsewhere && e.always(func(said condition) bool { return isReady(said) || drains(said) })
	})
	if len(c.sure) > 0 {
		return c
	}
	ready := len(c.maybe) > 0
	for _, e := range all {
		switch {
		case e.mayBeReady() || !e.ever(drains):
		case !ready && e.always(drains) && !e.elsewhere:
			c.sure, c.terminating = append(c.sure, e.addr), true
		default:
			c.maybe, c.why = append(c.maybe, e.addr), duplicated
		}
	}
	return c
}

// hinted returns the endpoints that topology hints leave to a node, and the rules that this follows. exact is false if
// the implementation may choose among them otherwise. Hints apply if every ready endpoint has them, and one of them is
// for the node or, without hints for nodes, for its zone.
func (s *State) hinted(c claim, all []endpoint, node string) (near []endpoint, exact bool, rules []Rule) {
	hintsNodes := func(c condition) bool { return len(c.nodes) > 0 }
	hintsZones := func(c condition) bool { return len(c.zones) > 0 }
	zone := s.zoneOf(node)
	forNode := func(c condition) bool { return slices.Contains(c.nodes, node) }
	forZone := func(c condition) bool { return zone != "" && slices.Contains(c.zones, zone) }

	ready := only(all, endpoint.mayBeReady)
	some := func(has func(condition) bool) bool {
		return slices.ContainsFunc(ready, func(e endpoint) bool { return e.ever(has) })
	}
	// by returns the endpoints of a hint, if all have one and one has this.
	by := func(has, this func(condition) bool) bool {
		if !every(ready, func(e endpoint) bool { return e.always(has) }) || !some(this) {
			return false
		}
		near, exact, rules = only(ready, func(e endpoint) bool { return e.ever(this) }), true, []Rule{hinted}
		if !every(all, func(e endpoint) bool { return e.always(has) }) {
			near, exact, rules = all, false, []Rule{hintsOfUnready}
		}
		return true
	}
	switch {
	case !some(hintsNodes) && !some(hintsZones):
	case !s.Offers.Topology, some(hintsNodes) && !s.Offers.NodeHints:
		return all, false, []Rule{hintsOptional}
	case !every(ready, endpoint.agreed):
		return all, false, []Rule{duplicated}
	case !every(ready, func(e endpoint) bool { return e.ever(isReady) }):
		return all, false, []Rule{publishedNotReady}
	case by(hintsNodes, forNode), by(hintsZones, forZone):
		return near, exact, rules
	}
	if c.service.Spec.TrafficDistribution != nil {
		return all, false, []Rule{hintsOptional}
	}
	return all, true, nil
}

// agreed reports whether all slices that list the endpoint say the same of its hints and readiness.
func (e endpoint) agreed() bool {
	return e.always(func(c condition) bool {
		first := e.said[0]
		return c.ready == first.ready && slices.Equal(c.zones, first.zones) && slices.Equal(c.nodes, first.nodes)
	})
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
