// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/proxiers/model"
)

// fragment is the contribution of one Service to the table.
type fragment struct {
	own    nft.Parts // needed even if other Services win the frontends
	claims []*claim
}

// frontend is an address that clients connect to, as a key of the maps: "10.96.0.10 . tcp . 80".
type frontend string

func newFrontend(a netip.Addr, p *model.Port, port uint16) frontend {
	return frontend(fmt.Sprintf("%s . %s . %d", a, protocol(p.ID), port))
}

// claim is a Service's claim to serve a frontend, with the parts that are needed if it wins.
type claim struct {
	to   frontend
	rank int    // rankClusterIP or rankExternal
	by   string // the port's name
	nft.Parts
}

// The ranks of claims to the same frontend.
const (
	rankClusterIP = iota
	rankExternal
)

// renderer makes fragments.
type renderer struct {
	settings
	nodePorts []netip.Addr // the node's addresses that serve NodePorts
}

func (r renderer) render(s *model.Service) *fragment {
	f := &fragment{}
	for _, p := range s.Ports {
		r.port(f, p)
	}
	return f
}

func (r renderer) port(f *fragment, p *model.Port) {
	f.own.AddElement(setClusterIPs, p.ClusterIP.String(), "")
	for _, ep := range p.Reached() {
		// Hand-written EndpointSlices need not name nodes.
		if ep.OnNode || r.nodePods.Contains(ep.Addr.Addr()) {
			f.own.AddElement(setHairpin,
				fmt.Sprintf("%[1]s . %[1]s . %s . %d", ep.Addr.Addr(), protocol(p.ID), ep.Addr.Port()), "")
		}
	}
	if p.Affinity > 0 {
		r.affinity(f, p)
	}
	f.claims = append(f.claims, r.clusterIP(p))
	for _, ip := range p.ExternalIPs {
		f.claims = append(f.claims, r.external(p, ip, p.Number))
	}
	for _, ip := range p.LoadBalancerIPs {
		c := r.external(p, ip, p.Number)
		if len(p.SourceRanges) > 0 {
			r.admit(c, p)
		}
		f.claims = append(f.claims, c)
	}
	if p.NodePort != 0 {
		for _, ip := range r.nodePorts {
			f.claims = append(f.claims, r.external(p, ip, p.NodePort))
		}
	}
}

// clusterIP returns the claim to the ClusterIP.
func (r renderer) clusterIP(p *model.Port) *claim {
	c := &claim{to: newFrontend(p.ClusterIP, p, p.Number), rank: rankClusterIP, by: p.ID.String()}
	switch {
	case len(p.Internal()) == 0:
		c.unserved(p)
	case p.InternalLocal:
		c.lead(mapServiceIPs, r.choice(c, p, onNode))
	default:
		c.lead(mapServiceIPs, r.choice(c, p, everywhere))
	}
	return c
}

// external returns the claim to any other frontend. Its traffic is masqueraded, because it may leave the node again.
// Under policy Local it stays on the node, so only the node's own traffic is masqueraded: its source may be the
// frontend itself.
func (r renderer) external(p *model.Port, ip netip.Addr, port uint16) *claim {
	c := &claim{to: newFrontend(ip, p, port), rank: rankExternal, by: p.ID.String()}
	if len(p.FromOutside()) == 0 {
		c.unserved(p)
	}
	switch {
	case len(p.Cluster) == 0: // so p.Local is empty, too
	case p.ExternalLocal:
		c.lead(mapServiceIPs, chainExternalLocal)
		c.lead(mapMasquerade, chainToNodeFromLocal)
		c.lead(mapShortCircuit, r.choice(c, p, everywhere))
		if len(p.Local) > 0 {
			c.lead(mapLocalIPs, r.choice(c, p, onNode))
		}
	default:
		c.lead(mapServiceIPs, r.choice(c, p, everywhere))
		c.lead(mapMasquerade, chainToNode)
	}
	return c
}

// choice returns the chain that picks an endpoint in the scope at random, with equal probability. It numbers the
// endpoints: the first map holds the first endpoint of each frontend, and so on.
func (r renderer) choice(c *claim, p *model.Port, s scope) string {
	if p.Affinity > 0 {
		return s.stickyChain(p.ID)
	}
	among := s.endpoints(p)
	var numbered []string
	for i, ep := range among {
		c.AddElement(s.endpointMap(i), string(c.to), fmt.Sprintf("%s . %d", ep.Addr.Addr(), ep.Addr.Port()))
		c.Containers = append(c.Containers, nft.Container{Name: s.endpointMap(i),
			Type: frontendType(r.family) + " : " + nft.AddrType(r.family) + " . inet_service"})
		c.AddChain(s.useChain(i), "",
			fmt.Sprintf("dnat %s addr . port to %s map @%s", nft.Word(r.family), key(r.family), s.endpointMap(i)))
		numbered = append(numbered, fmt.Sprintf("%d : goto %s", i, s.useChain(i)))
	}
	if len(among) == 1 {
		return s.useChain(0)
	}
	name := s.pickChain(len(among))
	c.AddChain(name, "", random(numbered))
	return name
}

// random returns a rule that jumps by one of the numbered elements.
func random(numbered []string) string {
	return fmt.Sprintf("numgen random mod %d vmap { %s }", len(numbered), strings.Join(numbered, ", "))
}

// affinity adds the chains of a port with session affinity: one for each scope, which picks the client's last endpoint
// or any, and one for each endpoint, with the set of its clients.
func (r renderer) affinity(f *fragment, p *model.Port) {
	for _, s := range []scope{everywhere, onNode} {
		if len(s.endpoints(p)) == 0 {
			continue
		}
		var lines, numbered []string
		for i, ep := range s.endpoints(p) {
			to := "goto " + endpointChain(p.ID, ep.Addr)
			lines = append(lines, fmt.Sprintf("%s saddr @%s %s", nft.Word(r.family), affinitySet(p, ep.Addr), to))
			numbered = append(numbered, fmt.Sprintf("%d : %s", i, to))
		}
		f.own.AddChain(s.stickyChain(p.ID), p.ID.String()+": the endpoint of the client, or any",
			append(lines, random(numbered))...)
	}
	// If the set is full, the first rule fails, and the second one still serves the client.
	for _, ep := range p.Reached() {
		clients := affinitySet(p, ep.Addr)
		f.own.Containers = append(f.own.Containers, nft.Container{Name: clients, Type: nft.AddrType(r.family),
			Timeout: p.Affinity})
		f.own.AddChain(endpointChain(p.ID, ep.Addr), "",
			fmt.Sprintf("update @%s { %s saddr }", clients, nft.Word(r.family)),
			fmt.Sprintf("meta l4proto %s dnat to %s", protocol(p.ID), ep.Addr))
	}
}

// admit drops packets from outside of the source ranges.
func (r renderer) admit(c *claim, p *model.Port) {
	from := p.Admitted(r.nodeAddr)
	var list []string
	for i, s := range from {
		// nft rejects a range within another one.
		within := func(o netip.Prefix) bool { return o.Bits() < s.Bits() && o.Contains(s.Addr()) }
		if !slices.ContainsFunc(from, within) && !slices.Contains(from[:i], s) {
			list = append(list, s.String())
		}
	}
	name := prefixFirewall + portName(p.ID)
	c.AddChain(name, p.ID.String()+": loadBalancerSourceRanges",
		fmt.Sprintf("%s saddr != { %s } drop", nft.Word(r.family), strings.Join(list, ", ")))
	c.lead(mapFirewallIPs, name)
}

// unserved handles packets that were not translated. If other nodes have endpoints, it drops the packets, so that the
// client retries, perhaps through another node. Otherwise it rejects them.
func (c *claim) unserved(p *model.Port) {
	if p.Anywhere {
		c.verdict(mapNoEndpoints, "drop")
	} else {
		c.lead(mapNoEndpoints, chainReject)
	}
}

// lead sends the frontend's packets to a chain.
func (c *claim) lead(in, to string) { c.verdict(in, "goto "+to) }

func (c *claim) verdict(in, verdict string) {
	c.Elements = append(c.Elements, nft.Element{In: in, Key: string(c.to), Value: verdict, Comment: c.by})
}
