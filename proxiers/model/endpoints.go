// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
)

// portKey matches a slice's port to a port of the Service: by name and protocol. The number may differ from slice to
// slice.
type portKey struct {
	name     string
	protocol corev1.Protocol
}

// candidate is an endpoint with the conditions and hints that decide who may use it.
type candidate struct {
	addr          netip.AddrPort
	onNode        bool
	nodeUnknown   bool
	ready         bool
	serving       bool
	terminating   bool
	zones, onlyBy []string // topology hints: for zones, for nodes
}

// usableLast reports whether the endpoint may be used when no endpoint is ready (KEP-1669).
func (c *candidate) usableLast() bool { return c.serving && c.terminating }

// serviceOf returns the key of the Service that a slice belongs to. It reports false for a slice of a headless Service.
func serviceOf(o *discoveryv1.EndpointSlice) (key, bool) {
	name := o.Labels[discoveryv1.LabelServiceName]
	if name == "" {
		return key{}, false
	}
	_, foreign := o.Labels[labelServiceProxyName]
	_, headless := o.Labels[corev1.IsHeadlessService]
	return key{o.Namespace, name}, !foreign && !headless
}

// collect returns the union of a Service's slices: for each port its endpoints, sorted by address and without
// duplicates.
func collect(from []*discoveryv1.EndpointSlice, f lab.Family, node string) map[portKey][]*candidate {
	all := map[portKey]map[netip.AddrPort]*candidate{}
	for _, s := range from {
		if string(s.AddressType) != "IP"+f.String() {
			continue
		}
		for _, p := range s.Ports {
			if p.Port == nil || !validPort(*p.Port) {
				continue
			}
			k := portKey{ptr.Deref(p.Name, ""), cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)}
			if all[k] == nil {
				all[k] = map[netip.AddrPort]*candidate{}
			}
			for i := range s.Endpoints {
				add(all[k], &s.Endpoints[i], uint16(*p.Port), f, node)
			}
		}
	}
	out := make(map[portKey][]*candidate, len(all))
	for k, set := range all {
		out[k] = slices.SortedFunc(maps.Values(set), func(a, b *candidate) int { return a.addr.Compare(b.addr) })
	}
	return out
}

// add puts an endpoint into a set. It uses only the endpoint's first address, because the API defines all of them as
// interchangeable. If two slices list one address and port, the entry that can serve more wins: a pod's address may be
// reused while the slice of its previous owner still exists.
func add(set map[netip.AddrPort]*candidate, e *discoveryv1.Endpoint, port uint16, f lab.Family, node string) {
	if len(e.Addresses) == 0 {
		return
	}
	a, ok := parseAddr(e.Addresses[0])
	if !ok || lab.FamilyOf(a) != f || a.IsUnspecified() || a.IsMulticast() {
		return
	}
	c := &candidate{
		addr:        netip.AddrPortFrom(a, port),
		onNode:      node != "" && ptr.Deref(e.NodeName, "") == node,
		nodeUnknown: ptr.Deref(e.NodeName, "") == "",
		ready:       ptr.Deref(e.Conditions.Ready, true),
		serving:     ptr.Deref(e.Conditions.Serving, true),
		terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			c.zones = append(c.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			c.onlyBy = append(c.onlyBy, n.Name)
		}
	}
	if old := set[c.addr]; old == nil || rank(c) > rank(old) {
		set[c.addr] = c
	}
}

func rank(c *candidate) int {
	r := 0
	switch {
	case c.ready:
		r = 4
	case c.usableLast():
		r = 2
	}
	if c.onNode {
		r++
	}
	return r
}

// assign sets the endpoint sets of a port.
func assign(p *Port, all []*candidate, node, zone string) {
	hinted := hintFilter(all, node, zone)
	p.Cluster = choose(all, hinted)
	p.Local = choose(slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return !c.onNode }), nil)
	for _, c := range all {
		p.Anywhere = p.Anywhere || c.ready || c.usableLast()
		if c.ready || c.serving {
			p.Serving = append(p.Serving, c.addr)
		}
	}
}

// choose returns the ready endpoints that pass the filter. If no endpoint is ready, it returns those that terminate but
// still serve.
func choose(all []*candidate, filter func(*candidate) bool) []Endpoint {
	var ready, last []Endpoint
	for _, c := range all {
		e := Endpoint{Addr: c.addr, OnNode: c.onNode, NodeUnknown: c.nodeUnknown, Terminating: c.terminating}
		switch {
		case c.ready && (filter == nil || filter(c)):
			ready = append(ready, e)
		case !c.ready && c.usableLast():
			last = append(last, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return last
}

// hintFilter returns the filter for topology hints. If every ready endpoint has node hints and some name this node, it
// keeps those. Otherwise it applies the same rule to zone hints. Otherwise it returns nil, which keeps all endpoints:
// an endpoint without a hint means that the hints are being changed and must not be used.
func hintFilter(all []*candidate, node, zone string) func(*candidate) bool {
	forNode := func(c *candidate) bool { return slices.Contains(c.onlyBy, node) }
	forZone := func(c *candidate) bool { return slices.Contains(c.zones, zone) }
	everyNode, everyZone, thisNode, thisZone := true, true, false, false
	for _, c := range all {
		if !c.ready {
			continue
		}
		everyNode = everyNode && len(c.onlyBy) > 0
		everyZone = everyZone && len(c.zones) > 0
		thisNode = thisNode || forNode(c)
		thisZone = thisZone || forZone(c)
	}
	switch {
	case everyNode && thisNode:
		return forNode
	case everyZone && thisZone && zone != "":
		return forZone
	default:
		return nil
	}
}

// countLocal returns the number of distinct addresses of ready endpoints on this node, over all ports.
func countLocal(found map[portKey][]*candidate) int {
	seen := map[netip.Addr]bool{}
	for _, list := range found {
		for _, c := range list {
			if c.onNode && c.ready {
				seen[c.addr.Addr()] = true
			}
		}
	}
	return len(seen)
}
