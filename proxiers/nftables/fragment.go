package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// fragment is what one Service contributes to the table.
type fragment struct {
	own    parts // needed whoever has the frontends
	claims []*claim
}

// frontend is where clients send to, as a key of the maps: "10.96.0.10 . tcp . 80".
type frontend string

func newFrontend(a netip.Addr, p *model.Port, port uint16) frontend {
	return frontend(fmt.Sprintf("%s . %s . %d", a, protocol(p.ID), port))
}

// claim is a Service's wish to serve a frontend, and what is needed if it does.
type claim struct {
	to      frontend
	cluster bool   // it is a ClusterIP
	by      string // the port's name
	parts
}

// renderer makes fragments.
type renderer struct {
	family lab.Family
	// nodeAddr is the node's primary address, nodePorts are those that serve NodePorts.
	nodeAddr  netip.Addr
	nodePorts []netip.Addr
}

func (r renderer) equal(o renderer) bool {
	return r.family == o.family && r.nodeAddr == o.nodeAddr && slices.Equal(r.nodePorts, o.nodePorts)
}

func (r renderer) render(s *model.Service) *fragment {
	f := &fragment{}
	for _, p := range s.Ports {
		r.port(f, p)
	}
	return f
}

func (r renderer) port(f *fragment, p *model.Port) {
	f.own.put(setClusterIPs, p.ClusterIP.String(), "")
	for _, ep := range reached(p) {
		if ep.OnNode {
			f.own.put(setHairpin, fmt.Sprintf("%[1]s . %[1]s . %s . %d", ep.Addr.Addr(), protocol(p.ID), ep.Addr.Port()), "")
		}
		if p.Affinity > 0 {
			r.remember(f, p, ep)
		}
	}
	if p.Affinity > 0 {
		r.sticky(f, p, prefixCluster, reachedByCluster(p))
		r.sticky(f, p, prefixLocal, reachedByLocal(p))
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

// clusterIP is the claim to the ClusterIP.
func (r renderer) clusterIP(p *model.Port) *claim {
	c := &claim{to: newFrontend(p.ClusterIP, p, p.Number), cluster: true, by: p.ID.String()}
	if among := p.Internal(); len(among) == 0 {
		c.unserved(p)
	} else if p.InternalLocal {
		c.lead(mapServiceIPs, r.amongLocal(c, p))
	} else {
		c.lead(mapServiceIPs, r.amongAll(c, p))
	}
	return c
}

// external is the claim to any other frontend. Its traffic is masqueraded, as it may leave the node again; under policy
// Local it does not, and only the node's own, which may have the frontend as its source, is.
func (r renderer) external(p *model.Port, ip netip.Addr, port uint16) *claim {
	c := &claim{to: newFrontend(ip, p, port), by: p.ID.String()}
	if len(p.FromOutside()) == 0 {
		c.unserved(p)
	}
	switch {
	case len(p.Cluster) == 0: // and none on this node
	case p.ExternalLocal:
		c.lead(mapServiceIPs, chainExternalLocal)
		c.lead(mapMasquerade, chainToNodeFromLocal)
		c.lead(mapShortCircuit, r.amongAll(c, p))
		if len(p.Local) > 0 {
			c.lead(mapLocalIPs, r.amongLocal(c, p))
		}
	default:
		c.lead(mapServiceIPs, r.amongAll(c, p))
		c.lead(mapMasquerade, chainToNode)
	}
	return c
}

// amongAll returns the chain that picks among the endpoints of policy Cluster.
func (r renderer) amongAll(c *claim, p *model.Port) string {
	if p.Affinity > 0 {
		return prefixCluster + portName(p.ID)
	}
	return r.pick(c, pickChain(len(p.Cluster)), mapEndpoints, p.Cluster)
}

// amongLocal returns the chain that picks among the endpoints on this node.
func (r renderer) amongLocal(c *claim, p *model.Port) string {
	if p.Affinity > 0 {
		return prefixLocal + portName(p.ID)
	}
	return r.pick(c, pickLocalChain(len(p.Local)), mapLocal, p.Local)
}

// pick numbers the endpoints of a frontend in a map, and has one of them taken at random, with equal chances.
func (r renderer) pick(c *claim, name, in string, among []model.Endpoint) string {
	for i, ep := range among {
		c.put(in, fmt.Sprintf("%s . %d", c.to, i), fmt.Sprintf("%s . %d", ep.Addr.Addr(), ep.Addr.Port()))
	}
	c.chains = append(c.chains, rules(name,
		fmt.Sprintf("dnat %s addr . port to %s . numgen random mod %d map @%s", ipWord(r.family), key(r.family), len(among), in)))
	return name
}

// sticky makes the chain that picks the endpoint that the client had lately, or else any.
func (r renderer) sticky(f *fragment, p *model.Port, prefix string, among []model.Endpoint) {
	if len(among) == 0 {
		return
	}
	var lines, numbered []string
	for i, ep := range among {
		to := "goto " + prefixEndpoint + endpointName(p.ID, ep.Addr)
		lines = append(lines, fmt.Sprintf("%s saddr @%s %s", ipWord(r.family), affinityName(p.ID, ep.Addr, p.Affinity), to))
		numbered = append(numbered, fmt.Sprintf("%d : %s", i, to))
	}
	lines = append(lines, fmt.Sprintf("numgen random mod %d vmap { %s }", len(among), strings.Join(numbered, ", ")))
	f.own.chains = append(f.own.chains, rules(prefix+portName(p.ID), lines...))
}

// remember makes the set and the chain of an endpoint that remembers its clients. Where the set is full, the first rule
// fails, and the second one serves the client all the same.
func (r renderer) remember(f *fragment, p *model.Port, ep model.Endpoint) {
	clients := affinityName(p.ID, ep.Addr, p.Affinity)
	f.own.sets = append(f.own.sets, affinitySet{clients, p.Affinity})
	f.own.chains = append(f.own.chains, rules(prefixEndpoint+endpointName(p.ID, ep.Addr),
		fmt.Sprintf("update @%s { %s saddr }", clients, ipWord(r.family)),
		fmt.Sprintf("meta l4proto %s dnat to %s", protocol(p.ID), ep.Addr)))
}

// admit drops what does not come from the source ranges. A node that is admitted may have picked the virtual IP itself as
// its source, where that is configured on one of its devices.
func (r renderer) admit(c *claim, p *model.Port) {
	var from []string
	for _, s := range p.SourceRanges {
		if !slices.ContainsFunc(p.SourceRanges, func(o netip.Prefix) bool { return o.Bits() < s.Bits() && o.Contains(s.Addr()) }) {
			from = append(from, s.String())
		}
	}
	if slices.ContainsFunc(p.SourceRanges, func(s netip.Prefix) bool { return s.Contains(r.nodeAddr) }) {
		for _, ip := range p.LoadBalancerIPs {
			if !slices.ContainsFunc(p.SourceRanges, func(s netip.Prefix) bool { return s.Contains(ip) }) {
				from = append(from, ip.String())
			}
		}
	}
	name := prefixFirewall + portName(p.ID)
	c.chains = append(c.chains, rules(name, fmt.Sprintf("%s saddr != { %s } drop", ipWord(r.family), strings.Join(from, ", "))))
	c.lead(mapFirewallIPs, name)
}

// unserved says what becomes of packets that were not translated: if there are endpoints elsewhere, the client is to try
// again, perhaps through another node; if there are none, it is told.
func (c *claim) unserved(p *model.Port) {
	if p.Anywhere {
		c.verdict(mapNoEndpoints, "drop")
	} else {
		c.verdict(mapNoEndpoints, "goto "+chainReject)
	}
}

// lead sends the frontend's packets to a chain.
func (c *claim) lead(in, to string) { c.verdict(in, "goto "+to) }

func (c *claim) verdict(in, verdict string) {
	c.elements = append(c.elements, element{in: in, key: string(c.to), value: verdict, comment: c.by})
}

func (p *parts) put(in, key, value string) {
	p.elements = append(p.elements, element{in: in, key: key, value: value})
}

// reachedByCluster are the endpoints that some frontend reaches under policy Cluster, or by the short cut of policy Local.
func reachedByCluster(p *model.Port) []model.Endpoint {
	if p.InternalLocal && !p.External() {
		return nil
	}
	return p.Cluster
}

// reachedByLocal are the endpoints on this node that some frontend reaches under policy Local.
func reachedByLocal(p *model.Port) []model.Endpoint {
	if p.InternalLocal || p.ExternalLocal && p.External() {
		return p.Local
	}
	return nil
}

// reached are all endpoints that some frontend reaches, each once.
func reached(p *model.Port) []model.Endpoint {
	all := slices.Clone(reachedByCluster(p))
	known := make(map[netip.AddrPort]bool, len(all))
	for _, ep := range all {
		known[ep.Addr] = true
	}
	for _, ep := range reachedByLocal(p) {
		if !known[ep.Addr] {
			all = append(all, ep)
		}
	}
	return all
}
