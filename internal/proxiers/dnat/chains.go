// SPDX-License-Identifier: Apache-2.0

// Package dnat holds the chains of the nat table with which a Service port is served, in the layout of kube-proxy's
// iptables mode. One chain for each policy picks an endpoint (KUBE-SVC-*, KUBE-SVL-*), one for each endpoint translates
// to it (KUBE-SEP-*), and one decides between the policies for all frontends but the ClusterIP (KUBE-EXT-*). The
// proxier adds the rules that lead to them.
//
// With session affinity, KUBE-SEP-* adds the source of each new connection to an IP set of its own, which forgets it
// after timeoutSeconds. KUBE-SVC-* and KUBE-SVL-* look into these sets before they pick an endpoint at random.
package dnat

import (
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// Chains renders the chains of ports.
type Chains struct {
	// NodePods is the source range of the node's own pods. Invalid means that it is unknown.
	NodePods netip.Prefix
	// Terse omits the comments of rules that exist once or more per endpoint.
	Terse bool
}

// MaxCommentedEndpoints is the number of endpoints up to which every rule has the same comment as in kube-proxy. For
// every new rule, the kernel walks all rules that a packet could meet (nft_chain_validate), which takes a third longer
// with comments: 150 ms instead of 100 at 10,000 Services of five endpoints.
const MaxCommentedEndpoints = 1000

// Crowded reports whether there are too many endpoints for comments. Existing rules keep their comments until they
// change.
func Crowded(s *model.State) bool {
	n := 0
	for _, svc := range s.Services {
		for _, p := range svc.Ports {
			n += len(p.Cluster)
		}
	}
	return n > MaxCommentedEndpoints
}

// remark returns the comment of an endpoint's rule.
func (r Chains) remark(text string) xtables.Part {
	if r.Terse {
		return ""
	}
	return xtables.Comment(text)
}

// External returns the chain for all frontends except the ClusterIP.
//
// Under policy Local, traffic of the node and of its pods goes to all endpoints: it has not passed a load balancer that
// knows which nodes have endpoints. A pod of another node has sent to this node, so it gets this node's endpoints
// (kubernetes#74383).
func (r Chains) External(p *model.Port) xtables.Chain {
	names := NamesOf(p.ID)
	about := p.ID.String() + " external destinations"
	c := xtables.Chain{Name: names.External}
	if !p.ExternalLocal {
		c.Add(xtables.Comment("masquerade traffic for "+about), xtables.Jump(ChainMarkMasq))
		c.Add(xtables.Jump(names.Cluster))
		return c
	}
	if r.NodePods.IsValid() {
		c.Add(xtables.Comment("pod traffic for "+about), xtables.From(r.NodePods), xtables.Jump(names.Cluster))
	}
	c.Add(xtables.Comment("masquerade LOCAL traffic for "+about), xtables.FromLocal, xtables.Jump(ChainMarkMasq))
	c.Add(xtables.Comment("route LOCAL traffic for "+about), xtables.FromLocal, xtables.Jump(names.Cluster))
	if len(p.Local) > 0 {
		c.Add(xtables.Jump(names.Local))
	}
	return c
}

// Balance adds rules that pick an endpoint: the client's last one under session affinity, else any with equal
// probability.
func (r Chains) Balance(c *xtables.Chain, p *model.Port, among []model.Endpoint) {
	if p.Affinity > 0 {
		for _, ep := range among {
			sep := EndpointChain(p.ID, ep.Addr)
			c.Add(r.toward(p, ep), xtables.InSet(ClientSet(p.ID, ep.Addr), "src"), xtables.Jump(sep))
		}
	}
	for i, ep := range among {
		var some xtables.Part
		if left := len(among) - i; left > 1 {
			some = xtables.OneIn(left)
		}
		c.Add(r.toward(p, ep), some, xtables.Jump(EndpointChain(p.ID, ep.Addr)))
	}
}

func (r Chains) toward(p *model.Port, ep model.Endpoint) xtables.Part {
	return r.remark(p.ID.String() + " -> " + ep.Addr.String())
}

// Translate returns the chain of an endpoint. It masquerades an endpoint's connection to itself. Otherwise the endpoint
// would reply to its own address, and the reply would not pass the node that has to translate it back.
func (r Chains) Translate(p *model.Port, ep model.Endpoint) xtables.Chain {
	c := xtables.Chain{Name: EndpointChain(p.ID, ep.Addr)}
	about := r.remark(p.ID.String())
	c.Add(about, xtables.From(ep.Addr.Addr()), xtables.Jump(ChainMarkMasq))
	if p.Affinity > 0 {
		c.Add(about, xtables.Remember(ClientSet(p.ID, ep.Addr)))
	}
	c.Add(about, xtables.Protocol(p.ID.Protocol), xtables.DNAT(ep.Addr))
	return c
}

// Describe adds the purposes of a port's chains, by name.
func Describe(purposes map[string]string, p *model.Port) {
	names := NamesOf(p.ID)
	port := fmt.Sprintf("%s (%s %d", p.ID, p.ID.Protocol, p.Number)
	if p.NodePort != 0 {
		port += fmt.Sprintf(", NodePort %d", p.NodePort)
	}
	port += ")"
	purposes[names.Cluster] = port + " is served by any endpoint"
	purposes[names.Local] = port + " is served by endpoints on this node"
	purposes[names.External] = port + " from outside of the cluster, and from inside by the same addresses"
	purposes[names.Firewall] = port + " admits some sources at its load balancer address"
	for _, ep := range p.Reached() {
		purposes[EndpointChain(p.ID, ep.Addr)] = fmt.Sprintf("%s goes to %s", port, ep.Addr)
	}
}
