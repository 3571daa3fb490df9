// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// sharedChain is a chain to which all Services contribute.
type sharedChain int

// The shared chains. Within each the order of Services does not matter.
const (
	natServices sharedChain = iota
	natNodePorts
	filterServices
	filterExternal
	filterNodePorts
	filterFirewall
	sharedChains
)

func (c sharedChain) table() xtables.TableName {
	if c == natServices || c == natNodePorts {
		return xtables.NAT
	}
	return xtables.Filter
}

func (c sharedChain) name() string {
	return [sharedChains]string{chainServices, chainNodePorts, chainServices, chainExternal, chainNodePorts,
		chainFirewall}[c]
}

// fragment holds the rules that one Service contributes to a node.
type fragment struct {
	// chains are the Service's own, all in the nat table.
	chains []xtables.Chain
	// shared are its rules in the shared chains.
	shared [sharedChains][]xtables.Rule
}

// share adds a rule to a shared chain unless it has it: an address may be both an external IP and a load balancer's.
func (f *fragment) share(c sharedChain, parts ...xtables.Part) {
	if r := xtables.NewRule(parts...); !slices.Contains(f.shared[c], r) {
		f.shared[c] = append(f.shared[c], r)
	}
}

// own adds a chain, unless it is empty.
func (f *fragment) own(c xtables.Chain) {
	if len(c.Rules) > 0 {
		f.chains = append(f.chains, c)
	}
}

// render returns the fragment of a Service.
func (r *renderer) render(s *model.Service) *fragment {
	f := &fragment{}
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

// talkative is the number of endpoints up to which every rule has a comment, the same as kube-proxy's. For every rule
// that is added, the kernel walks through all rules that a packet could meet, once for each path to them
// (nft_chain_validate). A comment makes that a third slower: 150 ms instead of 100 at 10,000 Services of five
// endpoints.
const talkative = 1000

// crowded reports whether there are too many endpoints for comments. Existing rules keep theirs until they change.
func crowded(s *model.State) bool {
	n := 0
	for _, svc := range s.Services {
		for _, p := range svc.Ports {
			n += len(p.Cluster)
		}
	}
	return n > talkative
}

// remark returns the comment of an endpoint's rule.
func (r *renderer) remark(text string) xtables.Part {
	if r.terse {
		return ""
	}
	return xtables.Comment(text)
}

// frontends captures the traffic to a port's addresses. It requires an endpoint on some node: a captured packet that
// finds no endpoint would continue with its destination unchanged, past the filter rules that reject it.
func (r *renderer) frontends(f *fragment, p *model.Port) {
	names, proto := namesOf(p.ID), p.ID.Protocol
	if len(p.Internal()) > 0 {
		f.share(natServices, xtables.Comment(p.ID.String()+" cluster IP"), xtables.To(p.ClusterIP, proto, p.Number),
			xtables.Jump(internalChain(p)))
	}
	if !p.Anywhere {
		return
	}
	for _, ip := range p.ExternalIPs {
		f.share(natServices, xtables.Comment(p.ID.String()+" external IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(names.external))
	}
	balanced := names.external
	if len(p.SourceRanges) > 0 {
		balanced = names.firewall
	}
	for _, ip := range p.LoadBalancerIPs {
		f.share(natServices, xtables.Comment(p.ID.String()+" loadbalancer IP"), xtables.To(ip, proto, p.Number),
			xtables.Jump(balanced))
		if len(p.SourceRanges) > 0 {
			f.share(filterFirewall, xtables.Comment(p.ID.String()+" traffic not accepted by "+names.firewall),
				xtables.To(ip, proto, p.Number), xtables.Drop)
		}
	}
	if p.NodePort != 0 {
		f.share(natNodePorts, xtables.Comment(p.ID.String()), xtables.ToPort(proto, p.NodePort), xtables.Jump(names.external))
	}
}

// withoutEndpoints stops traffic that no rule captured. It refuses the traffic if no node can serve it. Otherwise it
// drops the traffic silently, because another node may be about to take over the address.
func (r *renderer) withoutEndpoints(f *fragment, p *model.Port) {
	why, verdict := p.ID.String()+" has no local endpoints", xtables.Drop
	if !p.Anywhere {
		why, verdict = p.ID.String()+" has no endpoints", xtables.Reject
	}
	proto := p.ID.Protocol
	if len(p.Internal()) == 0 {
		f.share(filterServices, xtables.Comment(why), xtables.To(p.ClusterIP, proto, p.Number), verdict)
	}
	if len(p.FromOutside()) == 0 {
		for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
			f.share(filterExternal, xtables.Comment(why), xtables.To(ip, proto, p.Number), verdict)
		}
		if p.NodePort != 0 {
			f.share(filterExternal, xtables.Comment(why), xtables.ToLocal, xtables.ToPort(proto, p.NodePort), verdict)
		}
	}
}

// healthCheck lets load balancers reach the health check port through a closed INPUT chain.
func (r *renderer) healthCheck(f *fragment, p *model.Port) {
	if p.HealthCheckPort != 0 {
		f.share(filterNodePorts, xtables.Comment(p.ID.String()+" health check node port"),
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
func (r *renderer) chooseEndpoint(f *fragment, p *model.Port) {
	names := namesOf(p.ID)
	cluster, local := xtables.Chain{Name: names.cluster}, xtables.Chain{Name: names.local}
	internal := &cluster
	if p.InternalLocal {
		internal = &local
	}
	usesCluster := len(p.Cluster) > 0 && (!p.InternalLocal || p.External())
	usesLocal := len(p.Local) > 0 && (p.InternalLocal || p.ExternalLocal && p.External())
	if len(p.Internal()) > 0 {
		r.maskForeign(internal, p)
	}
	var endpoints []model.Endpoint
	if usesCluster {
		r.balance(&cluster, p, p.Cluster)
		endpoints = append(endpoints, p.Cluster...)
	}
	if usesLocal {
		r.balance(&local, p, p.Local)
		endpoints = append(endpoints, p.Local...)
	}
	if p.External() && p.Anywhere {
		r.external(f, p)
	}
	f.own(cluster)
	f.own(local)
	done := map[string]bool{}
	for _, ep := range endpoints {
		if c := r.translate(p, ep); !done[c.Name] {
			done[c.Name] = true
			f.own(c)
		}
	}
}

// maskForeign marks traffic to the ClusterIP whose replies might not return through this node.
func (r *renderer) maskForeign(c *xtables.Chain, p *model.Port) {
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
func (r *renderer) external(f *fragment, p *model.Port) {
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
	f.own(c)
	if len(p.LoadBalancerIPs) > 0 && len(p.SourceRanges) > 0 {
		f.own(r.admit(p))
	}
}

// admit creates the chain that admits the source ranges. Traffic from other sources keeps its destination, and the
// filter table drops it. An admitted node may use the virtual IP itself as its source, if one of its devices has that
// address.
func (r *renderer) admit(p *model.Port) xtables.Chain {
	names := namesOf(p.ID)
	c := xtables.Chain{Name: names.firewall}
	about := xtables.Comment(p.ID.String() + " loadbalancer IP")
	node := false
	for _, from := range p.SourceRanges {
		c.Add(about, xtables.From(from), xtables.Jump(names.external))
		node = node || from.Contains(r.nodeAddr)
	}
	if node {
		for _, ip := range p.LoadBalancerIPs {
			c.Add(about, xtables.FromAddr(ip), xtables.Jump(names.external))
		}
	}
	c.Add(xtables.Comment("other traffic to " + p.ID.String() + " will be dropped by " + chainFirewall))
	return c
}

// balance makes a chain pick one of the endpoints: the client's last one under session affinity, else any, with equal
// probability.
func (r *renderer) balance(c *xtables.Chain, p *model.Port, among []model.Endpoint) {
	if p.Affinity > 0 {
		for _, ep := range among {
			sep := endpointChain(p.ID, ep.Addr)
			c.Add(r.toward(p, ep), xtables.SeenWithin(sep, int(p.Affinity/time.Second)), xtables.Jump(sep))
		}
	}
	for i, ep := range among {
		sep := endpointChain(p.ID, ep.Addr)
		if left := len(among) - i; left > 1 {
			c.Add(r.toward(p, ep), xtables.OneIn(left), xtables.Jump(sep))
		} else {
			c.Add(r.toward(p, ep), xtables.Jump(sep))
		}
	}
}

func (r *renderer) toward(p *model.Port, ep model.Endpoint) xtables.Part {
	return r.remark(p.ID.String() + " -> " + ep.Addr.String())
}

// translate creates the chain of an endpoint. It masquerades an endpoint's connection to itself: if the endpoint saw
// its own address as the client's, its reply would not pass the node that has to translate it back.
func (r *renderer) translate(p *model.Port, ep model.Endpoint) xtables.Chain {
	c := xtables.Chain{Name: endpointChain(p.ID, ep.Addr)}
	about := r.remark(p.ID.String())
	c.Add(about, xtables.FromAddr(ep.Addr.Addr()), xtables.Jump(chainMarkMasq))
	l4 := xtables.Protocol(p.ID.Protocol)
	if p.Affinity > 0 {
		c.Add(about, xtables.Remember(c.Name), l4, xtables.DNAT(ep.Addr))
	} else {
		c.Add(about, l4, xtables.DNAT(ep.Addr))
	}
	return c
}
