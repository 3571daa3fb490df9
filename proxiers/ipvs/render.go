// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// frontend is where a virtual server listens.
type frontend struct {
	at    netip.AddrPort
	proto uint8
}

// server is a desired virtual server.
type server struct {
	// backends are sorted and unique. If there are none, new connections are translated before IPVS sees them, or
	// refused.
	backends []netip.AddrPort
	// serving are the endpoints that still answer established flows, backends or not.
	serving []netip.AddrPort
}

// member is an entry of a set.
type member struct {
	set   setID
	entry ipset.Entry
}

// fragment holds the entries that one Service needs.
type fragment struct {
	servers []claim[frontend, *server]
	// bound are the addresses on the device.
	bound   []claim[netip.Addr, struct{}]
	members []claim[member, struct{}]
	// translations are the rules for what IPVS does not serve.
	translations xtables.Fragment
}

// claim is one entry that a Service needs.
type claim[K comparable, V any] struct {
	key   K
	claim kit.Claim[V]
}

// place holds the addresses of the node that fragments depend on.
type place struct {
	// own are the node's addresses, and nodePorts those that serve NodePorts, both without loopback addresses.
	own, nodePorts []netip.Addr
	// primary is the node's primary address.
	primary netip.Addr
}

func (at place) equal(q place) bool {
	return slices.Equal(at.own, q.own) && slices.Equal(at.nodePorts, q.nodePorts) && at.primary == q.primary
}

// render returns the fragment of a Service.
func (d *desired) render(s *model.Service) *fragment {
	f := &fragment{}
	for _, p := range s.Ports {
		r := &rendering{fragment: f, at: d.at, port: p, proto: ipset.Protocols[p.ID.Protocol]}
		if r.proto == 0 {
			continue
		}
		r.loopBack()
		r.clusterIP()
		r.outside()
		d.translator.chains(&f.translations, p)
	}
	return f
}

// rendering renders one port.
type rendering struct {
	*fragment
	at    place
	port  *model.Port
	proto uint8
}

func (r *rendering) by(what string) string { return r.port.ID.String() + " " + what }

func (r *rendering) member(what string, id setID, e ipset.Entry) {
	r.members = append(r.members, claim[member, struct{}]{member{id, e}, kit.Claim[struct{}]{By: r.by(what)}})
}

// translate adds a virtual server without backends, and a rule that leads to a chain of translation.
func (r *rendering) translate(what string, at netip.AddrPort, chain string) {
	r.serve(what, at, nil)
	r.translations.Share(natTranslations, xtables.Comment(r.by(what)),
		xtables.To(at.Addr(), r.port.ID.Protocol, at.Port()), xtables.Jump(chain))
}

// serve adds a virtual server.
func (r *rendering) serve(what string, at netip.AddrPort, endpoints []model.Endpoint) {
	s := &server{serving: r.port.Serving}
	for _, e := range endpoints {
		s.backends = append(s.backends, e.Addr)
	}
	slices.SortFunc(s.backends, netip.AddrPort.Compare)
	s.backends = slices.Compact(s.backends)
	r.servers = append(r.servers, claim[frontend, *server]{
		frontend{at, r.proto}, kit.Claim[*server]{By: r.by(what), Want: s},
	})
}

// bind puts an address on the device, unless the node has it already.
func (r *rendering) bind(what string, a netip.Addr) {
	if slices.Contains(r.at.own, a) {
		return
	}
	r.bound = append(r.bound, claim[netip.Addr, struct{}]{a, kit.Claim[struct{}]{By: r.by(what)}})
	r.member(what, ipvsIPs, ipset.Entry{Addr: a})
}

func (r *rendering) entry(at netip.AddrPort) ipset.Entry {
	return ipset.Entry{Addr: at.Addr(), Proto: r.proto, Port: at.Port()}
}

// loopBack lists the endpoints that are or may be on this node. Their connections to themselves must be masqueraded.
// Otherwise a pod would reply to its own address.
func (r *rendering) loopBack() {
	for _, e := range slices.Concat(r.port.Cluster, r.port.Local) {
		if e.OnNode || e.NodeUnknown {
			entry := r.entry(e.Addr)
			entry.Source = netip.PrefixFrom(e.Addr.Addr(), e.Addr.Addr().BitLen())
			r.member("endpoint", loopBack, entry)
		}
	}
}

func (r *rendering) clusterIP() {
	p, what := r.port, "cluster IP"
	at := netip.AddrPortFrom(p.ClusterIP, p.Number)
	if translatesAll(p) && len(p.Internal()) > 0 {
		r.translate(what, at, dnat.InternalChain(p))
	} else {
		r.serve(what, at, p.Internal())
	}
	r.bind(what, at.Addr())
	r.member(what, clusterIP, r.entry(at))
	if len(p.Internal()) == 0 && p.Anywhere {
		r.member(what, internalNoLocal, r.entry(at))
	}
}

// outside adds all other frontends. If the node has no endpoint under policy Local, its own traffic and that of its
// pods still goes to all endpoints, and all other traffic is dropped before it is translated.
func (r *rendering) outside() {
	p := r.port
	serve := func(what string, at netip.AddrPort) {
		if translatesOutside(p) && p.Anywhere {
			r.translate(what, at, dnat.NamesOf(p.ID).External)
		} else {
			r.serve(what, at, p.FromOutside())
		}
		if p.ExternalLocal && len(p.Local) == 0 && p.Anywhere {
			r.member(what, externalNoLocal, r.entry(at))
		}
	}
	external := func(what string, at netip.AddrPort) {
		serve(what, at)
		if !p.Anywhere && !slices.Contains(r.at.own, at.Addr()) {
			r.member(what, externalRefused, r.entry(at))
		}
	}
	for _, ip := range p.ExternalIPs {
		at := netip.AddrPortFrom(ip, p.Number)
		external("external IP", at)
		r.member("external IP", externalIP, r.entry(at))
	}
	for _, ip := range p.LoadBalancerIPs {
		at := netip.AddrPortFrom(ip, p.Number)
		external("load balancer IP", at)
		r.loadBalancer(at)
	}
	if p.NodePort != 0 {
		for _, a := range r.at.nodePorts {
			serve("node port", netip.AddrPortFrom(a, p.NodePort))
		}
		r.nodePort()
	}
	if p.HealthCheckPort != 0 {
		r.member("health check", healthCheck, ipset.Entry{Port: p.HealthCheckPort})
	}
}

// loadBalancer lists an address in the sets for masquerading and source ranges. An admitted node may have this address
// as its source, because the address is on kube-ipvs0.
func (r *rendering) loadBalancer(at netip.AddrPort) {
	const what = "load balancer IP"
	entry := r.entry(at)
	r.member(what, loadBalancer, entry)
	if len(r.port.SourceRanges) == 0 {
		return
	}
	r.member(what, loadBalancerFW, entry)
	node := false
	for _, from := range r.port.SourceRanges {
		entry.Source = from
		r.member(what, sourceCIDR, entry)
		node = node || from.Contains(r.at.primary)
	}
	if node {
		entry.Source = netip.PrefixFrom(at.Addr(), at.Addr().BitLen())
		r.member(what, sourceIP, entry)
	}
}

// nodePort lists a port in the sets for masquerading.
func (r *rendering) nodePort() {
	set := nodePortSets[r.proto]
	if !set.byAddress {
		r.member("node port", set.id, ipset.Entry{Port: r.port.NodePort})
		return
	}
	for _, a := range r.at.nodePorts {
		r.member("node port", set.id, r.entry(netip.AddrPortFrom(a, r.port.NodePort)))
	}
}
