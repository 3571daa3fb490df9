// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// ways are the addresses of the relays of a port. The address of a missing relay is invalid.
type ways struct{ cluster, local netip.AddrPort }

// The comments of rules that lead to relays, from which a restarted proxy learns the ports of its relays.
func clusterWay(id model.PortID) string { return id.String() + " -> any endpoint" }
func localWay(id model.PortID) string   { return id.String() + " -> endpoint of this node" }

// renderer makes the rules of ports.
type renderer struct {
	// nodePods is the source range of the node's own pods. Invalid means that it is unknown.
	nodePods netip.Prefix
	// nodeAddr is the node's primary address.
	nodeAddr netip.Addr
}

// frontend is a destination of a port other than its ClusterIP.
type frontend struct {
	about string
	to    xtables.Part
	// sources limits its clients. Empty means no limit.
	sources []netip.Prefix
	// container is the chain for packets that enter the node, and host the chain for the node's own packets.
	container, host int
}

// port adds the rules of a port. nodePorts are its held NodePort claims.
func (r *renderer) port(f *xtables.Fragment, p *model.Port, w ways, nodePorts []claim) {
	r.internal(f, p, w)
	virtual := func(about string, ip netip.Addr, sources []netip.Prefix) {
		to := xtables.To(ip, p.ID.Protocol, p.Number)
		r.external(f, p, w, frontend{about, to, sources, portalsContainer, portalsHost})
	}
	for _, ip := range p.ExternalIPs {
		virtual("external IP", ip, nil)
	}
	for _, ip := range p.LoadBalancerIPs {
		virtual("load balancer IP", ip, p.Admitted(r.nodeAddr))
	}
	for _, c := range nodePorts {
		r.external(f, p, w, frontend{"NodePort", c.destination(), nil, nodePortContainer, nodePortHost})
	}
	if p.HealthCheckPort != 0 {
		f.Share(input, xtables.Comment(p.ID.String()+" health check NodePort"),
			xtables.ToPort(corev1.ProtocolTCP, p.HealthCheckPort), xtables.Accept)
	}
}

// internal adds the rules of the ClusterIP.
func (r *renderer) internal(f *xtables.Fragment, p *model.Port, w ways) {
	to := xtables.To(p.ClusterIP, p.ID.Protocol, p.Number)
	way, about := w.cluster, clusterWay(p.ID)
	if p.InternalLocal {
		way, about = w.local, localWay(p.ID)
	}
	if !way.IsValid() {
		f.Share(refused, xtables.Comment(p.ID.String()+" cluster IP: no endpoints"), to, withoutEndpoints(p))
		return
	}
	for _, c := range []int{portalsContainer, portalsHost} {
		f.Share(c, xtables.Comment(about), to, xtables.DNAT(way))
	}
}

// external adds the rules of another frontend. Under policy Local, traffic of the node and of its pods goes to all
// endpoints, because it has not passed a load balancer that knows which nodes have endpoints.
func (r *renderer) external(f *xtables.Fragment, p *model.Port, w ways, front frontend) {
	sources := front.sources
	if len(sources) == 0 {
		sources = []netip.Prefix{{}} // all clients
	}
	toCluster := func(c int, from netip.Prefix) {
		if w.cluster.IsValid() {
			f.Share(c, xtables.Comment(clusterWay(p.ID)), front.to, source(from), xtables.DNAT(w.cluster))
		}
	}
	for _, from := range sources {
		toCluster(front.host, from)
		if !p.ExternalLocal {
			toCluster(front.container, from)
		} else if pods, ok := both(from, r.nodePods); ok {
			toCluster(front.container, pods)
		}
	}
	if p.ExternalLocal && w.local.IsValid() {
		for _, from := range sources { // after the rule for pods, whose addresses the range may contain
			f.Share(front.container, xtables.Comment(localWay(p.ID)), front.to, source(from), xtables.DNAT(w.local))
		}
	}
	// A single rule for packets that are not redirected, because this chain has no order.
	about := p.ID.String() + " " + front.about
	switch {
	case len(p.FromOutside()) == 0 || !w.cluster.IsValid():
		f.Share(refused, xtables.Comment(about+": no endpoints"), front.to, withoutEndpoints(p))
	case len(front.sources) > 0:
		f.Share(refused, xtables.Comment(about+": not for this source"), front.to, xtables.Drop)
	case front.container == nodePortContainer:
		// The socket that holds the port does not answer.
		f.Share(refused, xtables.Comment(about+": not on this address"), front.to, xtables.Reject)
	}
}

// withoutEndpoints rejects traffic if no node has an endpoint, and drops it if another node may be about to take over
// the address.
func withoutEndpoints(p *model.Port) xtables.Part {
	if p.Anywhere {
		return xtables.Drop
	}
	return xtables.Reject
}

// destination matches packets to a claim.
func (c claim) destination() xtables.Part {
	if c.at.Addr().IsUnspecified() {
		return xtables.ToLocal + " " + xtables.ToPort(c.protocol, c.at.Port())
	}
	return xtables.To(c.at.Addr(), c.protocol, c.at.Port())
}

// source matches packets from a range. The zero range stands for all sources.
func source(p netip.Prefix) xtables.Part {
	if !p.IsValid() {
		return ""
	}
	return xtables.From(p)
}

// both returns the intersection of two ranges. The zero source range stands for all sources, the zero pod range for
// none.
func both(from, pods netip.Prefix) (netip.Prefix, bool) {
	switch {
	case !from.IsValid():
		return pods, pods.IsValid()
	case from.Bits() > pods.Bits():
		return from, from.Overlaps(pods)
	default:
		return pods, from.Overlaps(pods)
	}
}
