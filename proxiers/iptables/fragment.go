// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// The shared chains, in the order of layout.
const (
	natServices = iota
	natNodePorts
	filterServices
	filterExternal
	filterNodePorts
	filterFirewall
)

// layout returns the shared chains. tail holds the last rules of nat KUBE-SERVICES, which lead to the NodePorts.
func layout(tail []xtables.Rule) xtables.Layout {
	return xtables.Layout{
		{Table: xtables.NAT, Name: chainServices, Tail: tail}, {Table: xtables.NAT, Name: chainNodePorts},
		{Table: xtables.Filter, Name: chainServices}, {Table: xtables.Filter, Name: chainExternal},
		{Table: xtables.Filter, Name: chainNodePorts}, {Table: xtables.Filter, Name: chainFirewall},
	}
}

// render returns the fragment of a Service.
func (r *renderer) render(s *model.Service) *xtables.Fragment {
	f := &xtables.Fragment{}
	for _, p := range s.Ports {
		r.frontends(f, p)
		r.withoutEndpoints(f, p)
		r.healthCheck(f, p)
		r.chooseEndpoint(f, p)
	}
	return f
}

// renderer holds the settings of the node that the rules of Services depend on.
type renderer struct {
	chains dnat.Chains
	// podRange is the source range of all pods. Invalid means that it is unknown.
	podRange netip.Prefix
	// nodeAddr is the node's primary address.
	nodeAddr netip.Addr
	// masqueradeAll rewrites the source of all traffic.
	masqueradeAll bool
}

// frontends captures the traffic to a port's addresses. It does so only if some node has an endpoint. Otherwise a
// captured packet would keep its destination and bypass the filter rules that reject it.
func (r *renderer) frontends(f *xtables.Fragment, p *model.Port) {
	names, proto := dnat.NamesOf(p.ID), p.ID.Protocol
	if len(p.Internal()) > 0 {
		f.Share(natServices, xtables.Comment(p.ID.String()+" cluster IP"), xtables.To(p.ClusterIP, proto, p.Number),
			xtables.Jump(dnat.InternalChain(p)))
	}
	if !p.Anywhere {
		return
	}
	for _, ip := range p.ExternalIPs {
		f.Share(natServices, xtables.Comment(p.ID.String()+" external IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(names.External))
	}
	balanced := names.External
	if len(p.SourceRanges) > 0 {
		balanced = names.Firewall
	}
	for _, ip := range p.LoadBalancerIPs {
		f.Share(natServices, xtables.Comment(p.ID.String()+" loadbalancer IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(balanced))
		if len(p.SourceRanges) > 0 {
			f.Share(filterFirewall, xtables.Comment(p.ID.String()+" traffic not accepted by "+names.Firewall),
				xtables.To(ip, proto, p.Number), xtables.Drop)
		}
	}
	if p.NodePort != 0 {
		f.Share(natNodePorts, xtables.Comment(p.ID.String()), xtables.ToPort(proto, p.NodePort),
			xtables.Jump(names.External))
	}
}

// withoutEndpoints stops traffic that no rule captured. It rejects the traffic if no node has an endpoint. Otherwise it
// drops the traffic, because another node may be about to take over the address.
func (r *renderer) withoutEndpoints(f *xtables.Fragment, p *model.Port) {
	why, verdict := p.ID.String()+" has no local endpoints", xtables.Drop
	if !p.Anywhere {
		why, verdict = p.ID.String()+" has no endpoints", xtables.Reject
	}
	proto := p.ID.Protocol
	if len(p.Internal()) == 0 {
		f.Share(filterServices, xtables.Comment(why), xtables.To(p.ClusterIP, proto, p.Number), verdict)
	}
	if len(p.FromOutside()) == 0 {
		for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
			f.Share(filterExternal, xtables.Comment(why), xtables.To(ip, proto, p.Number), verdict)
		}
		if p.NodePort != 0 {
			f.Share(filterExternal, xtables.Comment(why), xtables.ToLocal, xtables.ToPort(proto, p.NodePort), verdict)
		}
	}
}

// healthCheck lets load balancers reach the health check port through a closed INPUT chain.
func (r *renderer) healthCheck(f *xtables.Fragment, p *model.Port) {
	if p.HealthCheckPort != 0 {
		f.Share(filterNodePorts, xtables.Comment(p.ID.String()+" health check node port"),
			xtables.ToPort(corev1.ProtocolTCP, p.HealthCheckPort), xtables.Accept)
	}
}

// chooseEndpoint creates the chains between a frontend and the translation to an endpoint.
func (r *renderer) chooseEndpoint(f *xtables.Fragment, p *model.Port) {
	names := dnat.NamesOf(p.ID)
	among, onNode := p.Used()
	cluster, local := xtables.Chain{Name: names.Cluster}, xtables.Chain{Name: names.Local}
	if len(p.Internal()) > 0 {
		internal := &cluster
		if p.InternalLocal {
			internal = &local
		}
		r.markForeign(internal, p)
	}
	r.chains.Balance(&cluster, p, among)
	r.chains.Balance(&local, p, onNode)
	if p.External() && p.Anywhere {
		r.external(f, p)
	}
	f.Own(cluster)
	f.Own(local)
	for _, ep := range p.Reached() {
		f.Own(r.chains.Translate(p, ep))
	}
}

// markForeign marks traffic to the ClusterIP whose replies might not return through this node.
func (r *renderer) markForeign(c *xtables.Chain, p *model.Port) {
	parts := []xtables.Part{xtables.Comment(p.ID.String() + " cluster IP"),
		xtables.To(p.ClusterIP, p.ID.Protocol, p.Number)}
	switch {
	case r.masqueradeAll:
		c.Add(append(parts, xtables.Jump(chainMarkMasq))...)
	case r.podRange.IsValid():
		c.Add(append(parts, xtables.NotFrom(r.podRange), xtables.Jump(chainMarkMasq))...)
	}
}

// external creates the chain for all frontends except the ClusterIP, and the chain before it that admits source ranges.
func (r *renderer) external(f *xtables.Fragment, p *model.Port) {
	f.Own(r.chains.External(p))
	if len(p.LoadBalancerIPs) > 0 && len(p.SourceRanges) > 0 {
		f.Own(r.admit(p))
	}
}

// admit creates the chain that admits the source ranges. Traffic from other sources keeps its destination, and the
// filter table drops it. An admitted node may use the virtual IP as its source, if one of its devices has that address.
func (r *renderer) admit(p *model.Port) xtables.Chain {
	names := dnat.NamesOf(p.ID)
	c := xtables.Chain{Name: names.Firewall}
	about := xtables.Comment(p.ID.String() + " loadbalancer IP")
	for _, from := range p.Admitted(r.nodeAddr) {
		c.Add(about, xtables.From(from), xtables.Jump(names.External))
	}
	c.Add(xtables.Comment("other traffic to " + p.ID.String() + " will be dropped by " + chainFirewall))
	return c
}
