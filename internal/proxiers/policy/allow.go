// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/proxiers/model"
)

// rules are the rules of a policy, with the pods of the node that it isolates.
type rules struct {
	all     *cluster
	policy  *networkingv1.NetworkPolicy
	targets []*member
}

// allows returns what a direction of the policy allows: each peer of a rule with each protocol of it.
func (r rules) allows(d Direction) []Allow {
	var out []Allow
	switch d {
	case Egress:
		for i, rule := range r.policy.Spec.Egress {
			out = append(out, r.rule(d, fmt.Sprintf("egress[%d]", i), " to", rule.To, rule.Ports)...)
		}
	case Ingress:
		for i, rule := range r.policy.Spec.Ingress {
			out = append(out, r.rule(d, fmt.Sprintf("ingress[%d]", i), " from", rule.From, rule.Ports)...)
		}
	}
	return out
}

func (r rules) rule(d Direction, at, word string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) []Allow {
	if len(peers) == 0 {
		return r.ports(d, at, side{Peer: Peer{Any: true}, pods: r.all.pods}, ports)
	}
	var out []Allow
	var blocks side // those without exceptions become one peer, so that ten thousand of them cost one rule
	var which []int
	for i, p := range peers {
		s, ok := r.side(p)
		switch {
		case !ok:
		case len(s.Blocks) > 0 && len(s.Except) == 0:
			blocks.Blocks, blocks.pods = append(blocks.Blocks, s.Blocks...), append(blocks.pods, s.pods...)
			which = append(which, i)
		default:
			out = append(out, r.ports(d, fmt.Sprintf("%s%s[%d]", at, word, i), s, ports)...)
		}
	}
	if len(which) == 0 {
		return out
	}
	why := fmt.Sprintf("%s%s[%d]", at, word, which[0])
	if n := len(which); n > 1 {
		why += fmt.Sprintf(" and %d more blocks", n-1)
	}
	return append(out, r.ports(d, why, blocks, ports)...)
}

// side is a peer with its pods.
type side struct {
	Peer
	pods []*member
}

// side returns the pods and addresses of a peer. It reports false if there are none, or the peer is not valid.
func (r rules) side(p networkingv1.NetworkPolicyPeer) (side, bool) {
	switch {
	case p.IPBlock != nil:
		return r.block(p.IPBlock)
	case p.PodSelector == nil && p.NamespaceSelector == nil:
		return side{}, false
	}
	in, labelled := only(r.policy.Namespace), labels.Everything()
	if p.NamespaceSelector != nil {
		namespaces := selector(p.NamespaceSelector)
		in = func(ns string) bool { return namespaces.Matches(r.all.namespaces[ns]) }
	}
	if p.PodSelector != nil {
		labelled = selector(p.PodSelector)
	}
	pods := r.all.pick(in, labelled)
	return side{Peer{Addrs: allAddrs(pods)}, pods}, len(pods) > 0
}

func (r rules) block(b *networkingv1.IPBlock) (side, bool) {
	cidr, ok := model.ParsePrefix(b.CIDR)
	if !ok {
		return side{}, false
	}
	s := side{Peer: Peer{Blocks: []netip.Prefix{cidr}}}
	for _, e := range b.Except {
		except, ok := model.ParsePrefix(e)
		if !ok {
			return side{}, false
		}
		s.Except = append(s.Except, except)
	}
	for _, m := range r.all.pods {
		inside := slices.DeleteFunc(slices.Clone(m.addrs), func(a netip.Addr) bool { return !s.contains(a) })
		if len(inside) > 0 {
			s.pods = append(s.pods, &member{Pod: m.Pod, addrs: inside})
		}
	}
	return s, true
}

// contains reports whether an address is in one of the blocks.
func (p Peer) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Blocks, func(b netip.Prefix) bool { return b.Contains(a) }) &&
		!slices.ContainsFunc(p.Except, func(e netip.Prefix) bool { return e.Contains(a) })
}

// protocols are the protocols with ports, in the order of allows.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// ports returns the allows of one peer.
func (r rules) ports(d Direction, at string, s side, ports []networkingv1.NetworkPolicyPort) []Allow {
	if len(ports) == 0 {
		return []Allow{{Peer: s.Peer, Why: at}}
	}
	var out []Allow
	for _, proto := range protocols {
		numbers, some, all := numbers(ports, proto)
		switch {
		case all:
			out = append(out, Allow{Peer: s.Peer, Protocol: proto, Why: at})
			continue
		case some:
			out = append(out, Allow{Peer: s.Peer, Protocol: proto, Ports: numbers, Why: at})
		}
		out = append(out, r.named(d, at, s, proto, ports)...)
	}
	return out
}

func protocolOf(p networkingv1.NetworkPolicyPort) corev1.Protocol {
	return ptr.Deref(p.Protocol, corev1.ProtocolTCP)
}

// numbers returns the port ranges of a protocol, and reports whether there are some, and whether all ports are allowed.
func numbers(ports []networkingv1.NetworkPolicyPort, proto corev1.Protocol) (ranges []PortRange, some, all bool) {
	for _, p := range ports {
		switch {
		case protocolOf(p) != proto:
		case p.Port == nil && p.EndPort == nil:
			return nil, true, true
		case p.Port == nil || p.Port.Type == intstr.String:
		default:
			first, last := p.Port.IntVal, p.Port.IntVal
			if p.EndPort != nil {
				last = *p.EndPort
			}
			if first >= 1 && last <= 65535 && first <= last {
				ranges = append(ranges, PortRange{uint16(first), uint16(last)})
			}
		}
	}
	return merge(ranges), len(ranges) > 0, false
}

// merge sorts ranges and joins adjacent ones.
func merge(ranges []PortRange) []PortRange {
	slices.SortFunc(ranges, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	var out []PortRange
	for _, r := range ranges {
		if last := len(out) - 1; last >= 0 && int(r.First) <= int(out[last].Last)+1 {
			out[last].Last = max(out[last].Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// named returns the allows for named ports. The destination pod defines the name: for ingress an isolated pod, for
// egress the peer, which then needs no other description.
func (r rules) named(d Direction, at string, s side, proto corev1.Protocol,
	ports []networkingv1.NetworkPolicyPort) []Allow {
	var out []Allow
	for _, p := range ports {
		if protocolOf(p) != proto || p.Port == nil || p.Port.Type != intstr.String || p.EndPort != nil {
			continue
		}
		a := Allow{Peer: s.Peer, Protocol: proto, Why: at + " port " + Plain(p.Port.StrVal)}
		to := r.targets
		if d == Egress {
			a.Peer, to = Peer{Any: true}, s.pods
		}
		for _, m := range to {
			number := m.port(p.Port.StrVal, proto)
			for _, addr := range m.addrs {
				if number != 0 {
					a.Named = append(a.Named, netip.AddrPortFrom(addr, number))
				}
			}
		}
		if len(a.Named) > 0 {
			slices.SortFunc(a.Named, netip.AddrPort.Compare)
			a.Named = slices.Compact(a.Named) // blocks may have a pod in common
			out = append(out, a)
		}
	}
	return out
}
