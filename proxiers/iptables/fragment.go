// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

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
	// podRange is the source range of all pods, nodePods that of the node's own. Invalid means that it is unknown.
	podRange, nodePods netip.Prefix
	// nodeAddr is the node's primary address.
	nodeAddr netip.Addr
	// masqueradeAll rewrites the source of all traffic.
	masqueradeAll bool
	// terse omits the comments of rules that exist once or more per endpoint.
	terse bool
}

// maxCommentedEndpoints is the number of endpoints up to which every rule has the same comment as in kube-proxy. For
// every new rule, the kernel walks all rules that a packet could meet (nft_chain_validate), which takes a third longer
// with comments: 150 ms instead of 100 at 10,000 Services of five endpoints.
const maxCommentedEndpoints = 1000

// crowded reports whether there are too many endpoints for comments. Existing rules keep their comments until they
// change.
func crowded(s *model.State) bool {
	n := 0
	for _, svc := range s.Services {
		for _, p := range svc.Ports {
			n += len(p.Cluster)
		}
	}
	return n > maxCommentedEndpoints
}

// remark returns the comment of an endpoint's rule.
func (r *renderer) remark(text string) xtables.Part {
	if r.terse {
		return ""
	}
	return xtables.Comment(text)
}

// frontends captures the traffic to a port's addresses. It does so only if some node has an endpoint. Otherwise a
// captured packet would keep its destination and bypass the filter rules that reject it.
func (r *renderer) frontends(f *xtables.Fragment, p *model.Port) {
	names, proto := namesOf(p.ID), p.ID.Protocol
	if len(p.Internal()) > 0 {
		f.Share(natServices, xtables.Comment(p.ID.String()+" cluster IP"), xtables.To(p.ClusterIP, proto, p.Number),
			xtables.Jump(internalChain(p)))
	}
	if !p.Anywhere {
		return
	}
	for _, ip := range p.ExternalIPs {
		f.Share(natServices, xtables.Comment(p.ID.String()+" external IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(names.external))
	}
	balanced := names.external
	if len(p.SourceRanges) > 0 {
		balanced = names.firewall
	}
	for _, ip := range p.LoadBalancerIPs {
		f.Share(natServices, xtables.Comment(p.ID.String()+" loadbalancer IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(balanced))
		if len(p.SourceRanges) > 0 {
			f.Share(filterFirewall, xtables.Comment(p.ID.String()+" traffic not accepted by "+names.firewall),
				xtables.To(ip, proto, p.Number), xtables.Drop)
		}
	}
	if p.NodePort != 0 {
		f.Share(natNodePorts, xtables.Comment(p.ID.String()), xtables.ToPort(proto, p.NodePort),
			xtables.Jump(names.external))
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

// internalChain returns the chain for traffic to the ClusterIP.
func internalChain(p *model.Port) string {
	if p.InternalLocal {
		return namesOf(p.ID).local
	}
	return namesOf(p.ID).cluster
}

// chooseEndpoint creates the chains between a frontend and the translation to an endpoint.
func (r *renderer) chooseEndpoint(f *xtables.Fragment, p *model.Port) {
	names := namesOf(p.ID)
	among, onNode := p.Used()
	cluster, local := xtables.Chain{Name: names.cluster}, xtables.Chain{Name: names.local}
	if len(p.Internal()) > 0 {
		internal := &cluster
		if p.InternalLocal {
			internal = &local
		}
		r.markForeign(internal, p)
	}
	r.balance(&cluster, p, among)
	r.balance(&local, p, onNode)
	if p.External() && p.Anywhere {
		r.external(f, p)
	}
	f.Own(cluster)
	f.Own(local)
	for _, ep := range p.Reached() {
		f.Own(r.translate(p, ep))
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
//
// Under policy Local, traffic of the node and of its pods goes to all endpoints: it has not passed a load balancer that
// knows which nodes have endpoints. A pod of another node has sent to this node, so it gets this node's endpoints
// (kubernetes#74383).
func (r *renderer) external(f *xtables.Fragment, p *model.Port) {
	names := namesOf(p.ID)
	about := p.ID.String() + " external destinations"
	c := xtables.Chain{Name: names.external}
	switch {
	case !p.ExternalLocal:
		c.Add(xtables.Comment("masquerade traffic for "+about), xtables.Jump(chainMarkMasq))
		c.Add(xtables.Jump(names.cluster))
	default:
		if r.nodePods.IsValid() {
			c.Add(xtables.Comment("pod traffic for "+about), xtables.From(r.nodePods), xtables.Jump(names.cluster))
		}
		c.Add(xtables.Comment("masquerade LOCAL traffic for "+about), xtables.FromLocal, xtables.Jump(chainMarkMasq))
		c.Add(xtables.Comment("route LOCAL traffic for "+about), xtables.FromLocal, xtables.Jump(names.cluster))
		if len(p.Local) > 0 {
			c.Add(xtables.Jump(names.local))
		}
	}
	f.Own(c)
	if len(p.LoadBalancerIPs) > 0 && len(p.SourceRanges) > 0 {
		f.Own(r.admit(p))
	}
}

// admit creates the chain that admits the source ranges. Traffic from other sources keeps its destination, and the
// filter table drops it. An admitted node may use the virtual IP as its source, if one of its devices has that address.
func (r *renderer) admit(p *model.Port) xtables.Chain {
	names := namesOf(p.ID)
	c := xtables.Chain{Name: names.firewall}
	about := xtables.Comment(p.ID.String() + " loadbalancer IP")
	for _, from := range p.Admitted(r.nodeAddr) {
		c.Add(about, xtables.From(from), xtables.Jump(names.external))
	}
	c.Add(xtables.Comment("other traffic to " + p.ID.String() + " will be dropped by " + chainFirewall))
	return c
}

// balance adds rules that pick an endpoint: the client's last one under session affinity, else any with equal
// probability.
func (r *renderer) balance(c *xtables.Chain, p *model.Port, among []model.Endpoint) {
	if p.Affinity > 0 {
		for _, ep := range among {
			sep := endpointChain(p.ID, ep.Addr)
			c.Add(r.toward(p, ep), xtables.InSet(clientSet(p.ID, ep.Addr), "src"), xtables.Jump(sep))
		}
	}
	for i, ep := range among {
		var some xtables.Part
		if left := len(among) - i; left > 1 {
			some = xtables.OneIn(left)
		}
		c.Add(r.toward(p, ep), some, xtables.Jump(endpointChain(p.ID, ep.Addr)))
	}
}

func (r *renderer) toward(p *model.Port, ep model.Endpoint) xtables.Part {
	return r.remark(p.ID.String() + " -> " + ep.Addr.String())
}

// translate creates the chain of an endpoint. It masquerades an endpoint's connection to itself. Otherwise the endpoint
// would reply to its own address, and the reply would not pass the node that has to translate it back.
func (r *renderer) translate(p *model.Port, ep model.Endpoint) xtables.Chain {
	c := xtables.Chain{Name: endpointChain(p.ID, ep.Addr)}
	about := r.remark(p.ID.String())
	c.Add(about, xtables.From(ep.Addr.Addr()), xtables.Jump(chainMarkMasq))
	if p.Affinity > 0 {
		c.Add(about, xtables.Remember(clientSet(p.ID, ep.Addr)))
	}
	c.Add(about, xtables.Protocol(p.ID.Protocol), xtables.DNAT(ep.Addr))
	return c
}
