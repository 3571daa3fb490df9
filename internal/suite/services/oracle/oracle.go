// SPDX-License-Identifier: Apache-2.0

// Package oracle says what may become of a connection to a Service. It is the text of the API reference (core/v1,
// discovery.k8s.io/v1) and of the Kubernetes pages on virtual IPs, traffic policies, topology and EndpointSlices as
// code. Each answer names the rules that decide it, with their sources. It judges proxiers, so it shares no code with
// them.
//
// Objects must be valid and defaulted, as an API server returns them.
package oracle

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// State is the state of a cluster.
type State struct {
	Nodes          []*corev1.Node
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	// Offers are the options of the API that the implementation offers. What it does not offer is left open.
	Offers Offers
}

// Offers are the options that the API leaves to implementations.
type Offers struct {
	// Topology and NodeHints: hints that name zones, and those that name nodes, apply.
	Topology, NodeHints bool
	// SourceRanges: spec.loadBalancerSourceRanges apply.
	SourceRanges bool
	// ServiceProxyName: the label that hands a Service to another proxier counts.
	ServiceProxyName bool
}

// Question is a connection to be opened, or the first datagram of a flow.
type Question struct {
	From Sender
	To   netip.AddrPort
	// Protocol is TCP, UDP or SCTP.
	Protocol corev1.Protocol
	// Via is the node that a packet from outside the cluster to a virtual IP comes to.
	Via string
}

// Sender is the client.
type Sender struct {
	Addr netip.Addr
	// Node is the node of a pod or of a process. It is empty outside of the cluster.
	Node string
	// Pod reports whether the client is a pod with an address of its own.
	Pod bool
}

func (s Sender) inside() bool { return s.Node != "" }

// Verdict is what must become of a connection.
type Verdict uint8

// The verdicts. The zero value leaves everything open.
const (
	Open             Verdict = iota // the API promises nothing
	Served                          // one of the Endpoints answers
	MayBeServed                     // one of the Endpoints answers, or nobody
	Refused                         // the client learns at once that nobody answers
	Dropped                         // nobody answers, and the client learns nothing
	DroppedOrRefused                // nobody answers
	NotServed                       // nobody answers; the network may say so in any way
)

// String returns the verdict in words.
func (v Verdict) String() string {
	return [...]string{"open", "served", "may be served", "refused", "dropped", "dropped or refused", "not served"}[v]
}

// Source is the client address that the server may see.
type Source uint8

// The sources. The zero value allows any.
const (
	AnySource    Source = iota
	Client              // the client's own, unless the client answers itself
	ClientOrNode        // the client's own, or one of a node
)

// Answer is what may become of a connection.
type Answer struct {
	Verdict Verdict
	// Endpoints are those that may answer, in the order of their addresses. Their share is the same if Evenly is set.
	Endpoints []netip.AddrPort
	Evenly    bool
	// Sure are the endpoints that may answer whatever is left open. Only an answer that is Served has them.
	Sure []netip.AddrPort
	// Sticky: the client reaches the same endpoint each time.
	Sticky bool
	Source Source
	// Rules are the rules that decide the answer, the most important one first.
	Rules []Rule
}

// Rule returns the most important rule of the answer.
func (a Answer) Rule() Rule { return a.Rules[0] }

func (a Answer) because(rules ...Rule) Answer {
	a.Rules = append(slices.Clone(a.Rules), rules...)
	return a
}

func answer(v Verdict, rules ...Rule) Answer { return Answer{Verdict: v, Rules: rules} }

// Ask answers a question.
func (s *State) Ask(q Question) Answer {
	claims, refusal := s.claims(q)
	switch {
	case len(claims) == 0:
		return refusal
	case len(claims) == 1:
		return s.claimed(q, claims[0])
	}
	all := answer(MayBeServed, sharedFrontend)
	for _, c := range claims {
		one := s.claimed(q, c)
		if one.Verdict == Open {
			return one.because(sharedFrontend)
		}
		all.Endpoints = union(all.Endpoints, one.Endpoints)
	}
	return all
}

// claimed answers a question to an address and port of one Service.
func (s *State) claimed(q Question, c claim) Answer {
	if c.kind == clusterIP && !q.From.inside() {
		return answer(Open, outsideToClusterIP)
	}
	family := familyOf(q.To.Addr())
	switch {
	case s.anyHandedOver(c, family):
		return answer(Open, sliceHandedOver)
	case s.anyPort(c, family, c.otherProtocol):
		return answer(Open, portProtocol)
	case s.anyPort(c, family, c.unrestricted):
		return answer(Open, portUnrestricted)
	}
	all := s.endpoints(c, family)
	a := s.routed(q, c, only(all, func(e endpoint) bool { return !e.isMulticast() }))
	if groups := only(all, endpoint.isMulticast); len(usable(groups).addrs()) > 0 {
		if len(a.Endpoints) == 0 {
			return answer(Open, multicastEndpoint)
		}
		// whether it must have a hint, too, is not said either
		beside := slices.DeleteFunc(s.routed(q, c, all).Endpoints, func(e netip.AddrPort) bool {
			return e.Addr().IsMulticast()
		})
		a = Answer{
			Verdict: MayBeServed, Endpoints: union(a.Endpoints, beside),
			Rules: append([]Rule{multicastEndpoint}, a.Rules...),
		}
	}
	if c.kind == loadBalancer {
		a = s.ranged(q, c, a)
	}
	if a.Verdict != Served {
		return a
	}
	if c.service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		a.Sticky, a.Evenly = timeout(c.service) >= leastTimeout, false
		a = a.because(affinity)
	}
	a.Evenly = a.Evenly && len(a.Endpoints) > 1
	switch {
	case c.kind == clusterIP && q.From.Pod:
		a.Source = Client
		a = a.because(clientKept)
	case c.kind != clusterIP && !q.From.inside() && c.local():
		a.Source = Client
		a = a.because(clientKeptLocal)
	case q.From.Pod || !q.From.inside():
		a.Source = ClientOrNode
	}
	return a
}

// leastTimeout is the shortest affinity timeout, in seconds, that a client cannot outlive between two connections of
// one volley.
const leastTimeout = 600

func timeout(s *corev1.Service) int32 {
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		return ptr.Deref(c.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

// routed applies the traffic policies to the endpoints of a port.
func (s *State) routed(q Question, c claim, all []endpoint) Answer {
	at := cmp.Or(c.node, q.From.Node, q.Via)
	local := c.local()
	switch {
	case c.kind == clusterIP && local:
		return chosen(localTo(all, at), answer(DroppedOrRefused, internalNobody), internalLocal)
	case c.kind == clusterIP:
		return s.everywhere(c, all, internalCluster, at)
	case !local:
		return s.everywhere(c, all, externalCluster, at, cmp.Or(q.From.Node, at))
	case q.From.inside() && c.kind != nodePort:
		return s.everywhere(c, all, externalInside, at)
	case q.From.inside():
		return eitherPolicy(all, at)
	}
	nobody := answer(Dropped, externalNobody)
	if !usable(all).certain { // there may be none anywhere
		nobody = answer(DroppedOrRefused, externalNowhere)
	}
	return chosen(localTo(all, at), nobody, externalLocal)
}

// eitherPolicy answers a client inside the cluster that asks a NodePort of policy Local. It may get either policy.
func eitherPolicy(all []endpoint, node string) Answer {
	a := orLocal(chosen(all, answer(DroppedOrRefused, externalNowhere), nodePortInside), all, node)
	if a.Verdict == Served && !usable(localTo(all, node)).certain {
		a.Verdict = MayBeServed
	}
	return a
}

// orLocal adds the endpoints of the node to an answer.
func orLocal(a Answer, all []endpoint, node string) Answer {
	a.Endpoints, a.Evenly, a.Sure = union(a.Endpoints, usable(localTo(all, node)).addrs()), false, nil
	return a
}

// everywhere answers under the policy Cluster. The hints of any of the nodes may apply.
func (s *State) everywhere(c claim, all []endpoint, rule Rule, nodes ...string) Answer {
	near, exact, applied := s.hinted(c, all, nodes[0])
	for _, node := range nodes[1:] {
		others, _, _ := s.hinted(c, all, node)
		in := func(list []endpoint, e endpoint) bool {
			return slices.ContainsFunc(list, func(o endpoint) bool { return o.addr == e.addr })
		}
		both := only(all, func(e endpoint) bool { return in(near, e) || in(others, e) })
		if len(both) != len(near) || len(both) != len(others) {
			near, exact, applied = both, false, []Rule{hintsAtClient}
		}
	}
	nobody := noEndpoints
	if c.kind != clusterIP {
		nobody = noEndpointsOutside
	}
	a := chosen(near, answer(Refused, nobody), rule)
	if !exact {
		a.Evenly, a.Sure = false, nil
	}
	a.Rules = append(slices.Clone(applied), a.Rules...)
	return a
}

// chosen answers for the endpoints that a policy admits. nobody is the answer if there are none.
func chosen(all []endpoint, nobody Answer, rule Rule) Answer {
	u := usable(all)
	switch {
	case len(u.addrs()) == 0:
		return nobody
	case !u.certain:
		return Answer{Verdict: MayBeServed, Endpoints: u.addrs(), Rules: []Rule{u.why, rule}}
	}
	a := Answer{Verdict: Served, Endpoints: u.addrs(), Evenly: len(u.maybe) == 0, Sure: u.sure, Rules: []Rule{rule}}
	if u.terminating {
		a.Rules = []Rule{terminating, rule}
	}
	if len(u.maybe) > 0 {
		a = a.because(u.why)
	}
	return a
}

// ranged applies spec.loadBalancerSourceRanges to an answer.
func (s *State) ranged(q Question, c claim, a Answer) Answer {
	ranges := c.service.Spec.LoadBalancerSourceRanges
	if len(ranges) == 0 {
		return a
	}
	own, listed := false, false
	for _, text := range ranges {
		r, err := parseRange(text)
		if err == nil && familyOf(r.Addr()) == familyOf(q.To.Addr()) {
			own, listed = true, listed || r.Contains(q.From.Addr)
		}
	}
	open := Answer{Verdict: MayBeServed, Endpoints: a.Endpoints}
	switch {
	case listed:
		return a
	case !own:
		return open.because(rangesElsewhere)
	case !s.Offers.SourceRanges:
		return open.because(rangesIgnored)
	default:
		return answer(DroppedOrRefused, outOfRange)
	}
}
