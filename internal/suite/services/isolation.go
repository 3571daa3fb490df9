// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	policies "github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab/cluster/store"
)

// isolation changes answers of the Service API to what they are under NetworkPolicies. Nil means that no program
// enforces policies.
type isolation struct {
	cluster *policies.Cluster
	nodes   map[netip.Addr]string // of the pods
	// hidden reports that endpoints may not see the client's address.
	hidden bool
}

func newIsolation(s *store.Snapshot, hidden bool) *isolation {
	i := &isolation{cluster: policies.FromSnapshot(s), nodes: map[netip.Addr]string{}, hidden: hidden}
	for _, p := range s.Pods {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				i.nodes[a] = p.Spec.NodeName
			}
		}
	}
	return i
}

// isolated is the rule of answers that policies have changed.
var isolated = oracle.Rule{Name: "isolated",
	Text:   "For a connection from a source pod to a destination pod to be allowed, both policies need to allow it.",
	Source: "https://kubernetes.io/docs/concepts/services-networking/network-policies/"}

// passage is what policies say of a connection. The zero value says that the API leaves it open.
type passage uint8

const (
	undefined passage = iota
	allowed
	denied
)

// judge changes the answer of a question to what it is under the policies.
func (i *isolation) judge(q *question) {
	if i == nil || len(i.cluster.Policies) == 0 {
		return
	}
	a := &q.answer
	switch a.Verdict {
	case oracle.Open, oracle.NotServed:
		return
	case oracle.Served, oracle.MayBeServed:
		if i.pass(q) {
			return
		}
		left := slices.DeleteFunc(slices.Clone(a.Endpoints), func(e netip.AddrPort) bool {
			return i.passage(q, e) == denied
		})
		if a.Verdict = oracle.MayBeServed; len(left) == 0 {
			a.Verdict = oracle.NotServed
		}
		a.Endpoints, a.Sure, a.Evenly, a.Sticky, a.Source = left, nil, false, false, oracle.AnySource
	default: // no endpoint answers, and an egress policy may drop the packet before the proxier refuses it
		if i.egress(q, policies.End{}) == allowed {
			return
		}
		a.Verdict = oracle.NotServed
	}
	a.Rules = append([]oracle.Rule{isolated}, a.Rules...)
}

// indifferent reports whether policies surely leave an answer to the question as it is.
func (i *isolation) indifferent(q question, a oracle.Answer) bool {
	q.answer = a
	i.judge(&q)
	return q.answer.Verdict == a.Verdict && len(q.answer.Rules) == len(a.Rules)
}

// pass reports whether policies surely let the sender reach each endpoint.
func (i *isolation) pass(q *question) bool {
	barred := func(e netip.AddrPort) bool { return i.passage(q, e) != allowed }
	return !slices.ContainsFunc(q.answer.Endpoints, barred)
}

// passage returns what the policies of both ends say of a connection to an endpoint. Whether a pod that is isolated may
// reach itself through a Service is open (docs/netpol.md).
func (i *isolation) passage(q *question, endpoint netip.AddrPort) passage {
	out, in := i.egress(q, i.end(endpoint.Addr())), i.ingress(q, endpoint)
	switch {
	case out == denied || in == denied:
		return denied
	case out == allowed && in == allowed:
		return allowed
	}
	return undefined
}

func (i *isolation) end(a netip.Addr) policies.End {
	end := policies.End{Addr: a}
	has := func(p *policies.Pod) bool { return slices.Contains(p.Addrs, a) }
	if at := slices.IndexFunc(i.cluster.Pods, has); at >= 0 {
		end.Pod = i.cluster.Pods[at]
	}
	return end
}

// egress returns what the policies of the sender say. They see the endpoint in place of a ClusterIP. Of addresses that
// may lead to another node first, and of relays, the API does not say what they see.
func (i *isolation) egress(q *question, to policies.End) passage {
	flow := policies.Flow{From: i.end(q.from.Addr), Protocol: q.to.protocol}
	switch {
	case len(i.cluster.Judge(flow).Egress.Isolating) == 0:
		return allowed
	case i.hidden || q.to.kind != "clusterip" || to.Pod == nil || to.Pod == flow.From.Pod:
		return undefined
	}
	if flow.To = to; i.cluster.Judge(flow).Egress.Allowed() {
		return allowed
	}
	return denied
}

// ingress returns what the policies of the endpoint say. If a node may replace the client's address, they may see the
// client, or the endpoint's own node, which is always allowed, or another node, of which only a rule without peers
// surely knows.
func (i *isolation) ingress(q *question, endpoint netip.AddrPort) passage {
	flow := policies.Flow{From: i.end(q.from.Addr), To: i.end(endpoint.Addr()), Protocol: q.to.protocol,
		Port: int32(endpoint.Port())}
	itself := flow.From.Pod != nil && flow.From.Pod == flow.To.Pod
	own := i.cluster.Judge(flow).Ingress
	flow.From = policies.End{}
	other := i.cluster.Judge(flow).Ingress
	switch {
	case len(other.Isolating) == 0:
		return allowed
	case itself:
		return undefined
	case !i.hidden && q.answer.Source == oracle.Client && own.Allowed():
		return allowed
	case !i.hidden && q.answer.Source == oracle.Client:
		return denied
	case own.Allowed() && other.Allowed(), q.from.Node == i.nodes[endpoint.Addr()] && q.from.kind == "node" &&
		q.to.kind == "clusterip":
		return allowed
	}
	return undefined
}
