// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// fragment is what one Service contributes to each chain, in order.
type fragment [chains][]xtables.Rule

// add adds a rule, once: the same address may be listed as an external IP and as a load balancer's.
func (f *fragment) add(c chain, parts ...xtables.Part) {
	parts = slices.DeleteFunc(parts, func(p xtables.Part) bool { return p == "" })
	if r := xtables.NewRule(parts...); !slices.Contains(f[c], r) {
		f[c] = append(f[c], r)
	}
}

// ways are where the relays of a port let clients in. One that is not valid is not there.
type ways struct {
	cluster, local netip.AddrPort
}

// The comments of rules that lead to relays. They tell a proxy that comes back which relay was where.
func clusterWay(id model.PortID) string { return id.String() + " -> any endpoint" }
func localWay(id model.PortID) string   { return id.String() + " -> endpoint of this node" }

// renderer makes the rules of ports.
type renderer struct {
	// nodePods is the source range of the node's own pods. Invalid means that it is unknown.
	nodePods netip.Prefix
	// nodeAddr is the node's primary address.
	nodeAddr netip.Addr
}

// frontend is a destination by which others than pods and nodes reach a port.
type frontend struct {
	about string
	to    xtables.Part
	// sources limits who may use it. None means everybody.
	sources []netip.Prefix
	// container is the chain for packets that come to the node, host that for the node's own.
	container, host chain
}

// port adds the rules of a port. nodePorts are those of its NodePort claims that are held.
func (r *renderer) port(f *fragment, p *model.Port, w ways, nodePorts []claim) {
	proto := p.ID.Protocol
	r.internal(f, p, w)
	for _, ip := range p.ExternalIPs {
		r.external(f, p, w, frontend{"external IP", xtables.To(ip, proto, p.Number), nil, portalsContainer, portalsHost})
	}
	for _, ip := range p.LoadBalancerIPs {
		r.external(f, p, w, frontend{"load balancer IP", xtables.To(ip, proto, p.Number), p.Admitted(r.nodeAddr),
			portalsContainer, portalsHost})
	}
	for _, c := range nodePorts {
		r.external(f, p, w, frontend{"NodePort", c.destination(), nil, nodePortContainer, nodePortHost})
	}
	if p.HealthCheckPort != 0 {
		f.add(input, xtables.Comment(p.ID.String()+" health check NodePort"),
			xtables.ToPort(corev1.ProtocolTCP, p.HealthCheckPort), xtables.Accept)
	}
}

// internal is the way to the ClusterIP, the same for all.
func (r *renderer) internal(f *fragment, p *model.Port, w ways) {
	to := xtables.To(p.ClusterIP, p.ID.Protocol, p.Number)
	way, about := w.cluster, clusterWay(p.ID)
	if p.InternalLocal {
		way, about = w.local, localWay(p.ID)
	}
	if !way.IsValid() {
		f.add(refused, xtables.Comment(p.ID.String()+" cluster IP: no endpoints"), to, withoutEndpoints(p))
		return
	}
	for _, c := range []chain{portalsContainer, portalsHost} {
		f.add(c, xtables.Comment(about), to, xtables.DNAT(way))
	}
}

// external is the way to another frontend. Under policy Local, traffic of the node and of its pods takes the short cut
// to all endpoints: it has not come through a load balancer that knows which nodes have endpoints.
func (r *renderer) external(f *fragment, p *model.Port, w ways, front frontend) {
	sources := front.sources
	if len(sources) == 0 {
		sources = []netip.Prefix{{}} // everybody
	}
	toCluster := func(c chain, from netip.Prefix) {
		if w.cluster.IsValid() {
			f.add(c, xtables.Comment(clusterWay(p.ID)), front.to, source(from), xtables.DNAT(w.cluster))
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
		for _, from := range sources { // after the pods, if they are among them
			f.add(front.container, xtables.Comment(localWay(p.ID)), front.to, source(from), xtables.DNAT(w.local))
		}
	}
	// One rule for what is not redirected: the order in this chain is not kept.
	about := p.ID.String() + " " + front.about
	switch {
	case len(p.FromOutside()) == 0 || !w.cluster.IsValid():
		f.add(refused, xtables.Comment(about+": no endpoints"), front.to, withoutEndpoints(p))
	case len(front.sources) > 0:
		f.add(refused, xtables.Comment(about+": not for this source"), front.to, xtables.Drop)
	case front.container == nodePortContainer:
		// The socket that holds the port answers nobody.
		f.add(refused, xtables.Comment(about+": not on this address"), front.to, xtables.Reject)
	}
}

// withoutEndpoints refuses traffic that no node can serve, and drops in silence what another node may be about to take
// over.
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

// source matches packets from a range; the zero one stands for everybody.
func source(p netip.Prefix) xtables.Part {
	if !p.IsValid() {
		return ""
	}
	return xtables.From(p)
}

// both is what two ranges have in common; the zero one stands for everybody, except for pods: no range, no pods.
func both(from, pods netip.Prefix) (netip.Prefix, bool) {
	switch {
	case !pods.IsValid() || from.IsValid() && !from.Overlaps(pods):
		return netip.Prefix{}, false
	case from.IsValid() && from.Bits() > pods.Bits():
		return from, true
	default:
		return pods, true
	}
}
