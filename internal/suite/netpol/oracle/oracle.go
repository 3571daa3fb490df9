// SPDX-License-Identifier: Apache-2.0

// Package oracle says which connections NetworkPolicies allow. It is the text of the API reference
// (networking.k8s.io/v1) as code, one function per paragraph, short rather than fast. It judges enforcers, so it shares
// no code with them, not even for label selectors.
//
// Policies must be valid and defaulted, as an API server returns them.
package oracle

import (
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Cluster holds the objects that policies select and the policies themselves.
type Cluster struct {
	// Namespaces are the labels of each namespace.
	Namespaces map[string]map[string]string
	Pods       []*Pod
	Policies   []*networkingv1.NetworkPolicy
}

// Pod is a pod in the cluster's network. Policies neither select nor match pods in their node's network.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addrs           []netip.Addr
	Ports           []corev1.ContainerPort
}

// End is one end of a connection.
type End struct {
	// Addr is its address after all destination NAT and before any source NAT.
	Addr netip.Addr
	// Pod is the pod with this address, nil if there is none.
	Pod *Pod
}

// Flow is a connection to be opened. Policies do not apply to its replies.
type Flow struct {
	From, To End
	Protocol corev1.Protocol
	Port     int32 // of the destination
}

// Judgement is the verdict of both sides on a connection, with the reasons. Both must allow it.
type Judgement struct{ Egress, Ingress Side }

// Allowed reports whether the connection may be opened.
func (j Judgement) Allowed() bool { return j.Egress.Allowed() && j.Ingress.Allowed() }

// Side is the verdict of the policies of one end.
type Side struct {
	// Isolating are the policies that isolate the pod in this direction. Without any, it is not isolated.
	Isolating []*networkingv1.NetworkPolicy
	// By is the first of them with a rule that allows the connection, or nil.
	By *networkingv1.NetworkPolicy
}

// Allowed reports whether this end allows the connection: "if there are no policies that select a pod,
// everything is allowed; if there are, it must match at least one rule of one of them".
func (s Side) Allowed() bool { return len(s.Isolating) == 0 || s.By != nil }

// Allows reports whether a connection may be opened.
func (c *Cluster) Allows(f Flow) bool { return c.Judge(f).Allowed() }

// Judge returns the verdicts of both ends on a connection. Policies cannot keep a pod from reaching itself.
func (c *Cluster) Judge(f Flow) Judgement {
	if f.From.Pod != nil && f.From.Pod == f.To.Pod {
		return Judgement{}
	}
	return Judgement{
		Egress:  c.side(networkingv1.PolicyTypeEgress, f.From, f.To, f),
		Ingress: c.side(networkingv1.PolicyTypeIngress, f.To, f.From, f),
	}
}

// side applies the policies of one end to the other.
func (c *Cluster) side(direction networkingv1.PolicyType, own, peer End, f Flow) Side {
	var s Side
	if own.Pod == nil {
		return s
	}
	for _, p := range c.Policies {
		if !selects(p, own.Pod) {
			continue
		}
		rules, isolates := Rules(p, direction)
		if !isolates {
			continue
		}
		s.Isolating = append(s.Isolating, p)
		allows := func(r Rule) bool { return c.ruleAllows(r, p.Namespace, peer, f) }
		if s.By == nil && slices.ContainsFunc(rules, allows) {
			s.By = p
		}
	}
	return s
}

// selects reports whether a policy applies to a pod: one of its own namespace that its podSelector matches.
func selects(p *networkingv1.NetworkPolicy, pod *Pod) bool {
	return p.Namespace == pod.Namespace && Matches(&p.Spec.PodSelector, pod.Labels)
}

// Rule is an ingress or an egress rule.
type Rule struct {
	Peers []networkingv1.NetworkPolicyPeer
	Ports []networkingv1.NetworkPolicyPort
}

// Rules returns the rules of a policy for a direction, and whether it isolates its pods in that direction. If not, the
// rules have no effect. A policy without types has Ingress, and also Egress if it has egress rules.
func Rules(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (rules []Rule, isolates bool) {
	isIngress := direction == networkingv1.PolicyTypeIngress
	if isIngress {
		for _, r := range p.Spec.Ingress {
			rules = append(rules, Rule{r.From, r.Ports})
		}
	} else {
		for _, r := range p.Spec.Egress {
			rules = append(rules, Rule{r.To, r.Ports})
		}
	}
	if len(p.Spec.PolicyTypes) == 0 {
		return rules, isIngress || len(rules) > 0
	}
	return rules, slices.Contains(p.Spec.PolicyTypes, direction)
}

// EachRule yields pointers to the peers and ports of every rule of a policy.
func EachRule(p *networkingv1.NetworkPolicy) iter.Seq2[*[]networkingv1.NetworkPolicyPeer,
	*[]networkingv1.NetworkPolicyPort] {
	return func(yield func(*[]networkingv1.NetworkPolicyPeer, *[]networkingv1.NetworkPolicyPort) bool) {
		for i := range p.Spec.Ingress {
			if r := &p.Spec.Ingress[i]; !yield(&r.From, &r.Ports) {
				return
			}
		}
		for i := range p.Spec.Egress {
			if r := &p.Spec.Egress[i]; !yield(&r.To, &r.Ports) {
				return
			}
		}
	}
}

// ruleAllows reports whether a connection matches one of a rule's peers and one of its ports. A missing or empty list
// of peers matches all peers, and one of ports all ports.
func (c *Cluster) ruleAllows(r Rule, namespace string, peer End, f Flow) bool {
	return (len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p networkingv1.NetworkPolicyPeer) bool {
		return c.isPeer(p, namespace, peer)
	})) && (len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool {
		return isPort(p, f)
	}))
}

// isPeer reports whether a peer matches an end. An ipBlock matches any address. A podSelector alone matches pods of the
// policy's namespace. A namespaceSelector alone matches all pods of the matching namespaces. Both together match the
// matching pods of the matching namespaces.
func (c *Cluster) isPeer(p networkingv1.NetworkPolicyPeer, namespace string, peer End) bool {
	if p.IPBlock != nil {
		return inBlock(p.IPBlock, peer.Addr)
	}
	if peer.Pod == nil {
		return false
	}
	inNamespace := peer.Pod.Namespace == namespace
	if p.NamespaceSelector != nil {
		inNamespace = Matches(p.NamespaceSelector, c.Namespaces[peer.Pod.Namespace])
	}
	return inNamespace && (p.PodSelector == nil || Matches(p.PodSelector, peer.Pod.Labels))
}

// inBlock reports whether an address is in the cidr and in none of the excepts.
func inBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	return contains(b.CIDR, a) && !slices.ContainsFunc(b.Except, func(e string) bool { return contains(e, a) })
}

// isPort reports whether a port matches the flow's protocol and port number. Without a port it matches all ports of the
// protocol, with endPort the range from port to endPort. A name matches the destination pod's port of that name and
// protocol.
func isPort(p networkingv1.NetworkPolicyPort, f Flow) bool {
	if *p.Protocol != f.Protocol {
		return false
	}
	switch {
	case p.Port == nil:
		return true
	case p.Port.Type == intstr.String:
		return f.To.Pod != nil && slices.ContainsFunc(f.To.Pod.Ports, func(has corev1.ContainerPort) bool {
			return has.Name == p.Port.StrVal && has.Protocol == f.Protocol && has.ContainerPort == f.Port
		})
	case p.EndPort != nil:
		return p.Port.IntVal <= f.Port && f.Port <= *p.EndPort
	default:
		return p.Port.IntVal == f.Port
	}
}
