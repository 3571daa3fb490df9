// SPDX-License-Identifier: Apache-2.0

// Package policy is what the enforcers of NetworkPolicy share: it compiles the policies of a cluster into addresses and
// ports for one node, and makes a spec.Proxier of a Mechanism.
package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// State is what a node must enforce. It is immutable.
type State struct {
	// Pods are the pods of the node with addresses of their own, by namespace and name.
	Pods []*Pod
	// Policies are the policies that isolate one of the pods, ingress first, then by namespace and name.
	Policies []*Policy
}

// Pod is a pod of the node.
type Pod struct {
	Namespace, Name string
	Account         string // its service account
	Addrs           []netip.Addr
	// Ingress and Egress are the policies that isolate it. None means that it is not isolated.
	Ingress, Egress []*Policy
}

// Policies returns the policies that isolate the pod in a direction.
func (p *Pod) Policies(d Direction) []*Policy {
	if d == Egress {
		return p.Egress
	}
	return p.Ingress
}

// Label returns "namespace/name" in a form that is safe in rules.
func (p *Pod) Label() string { return Plain(p.Namespace + "/" + p.Name) }

// Direction is seen from the pod that is isolated.
type Direction string

// The directions.
const (
	Ingress Direction = "ingress"
	Egress  Direction = "egress"
)

// Policy is one direction of a NetworkPolicy.
type Policy struct {
	Direction       Direction
	Namespace, Name string
	// Allows match the allowed packets.
	Allows []Allow
}

// Label returns "namespace/name" in a form that is safe in rules.
func (p *Policy) Label() string { return Plain(p.Namespace + "/" + p.Name) }

// Allow matches packets that a policy allows.
type Allow struct {
	Peer Peer
	// Protocol is empty for any.
	Protocol corev1.Protocol
	// Ports are the destination ports, sorted and not adjacent. None stands for all, unless there are Named ones.
	Ports []PortRange
	// Named are the destinations of a named port.
	Named []netip.AddrPort
	// Why is the place in the policy: "ingress[0] from[1] port http".
	Why string
}

// Peer is the other side of a connection: any, some addresses, or some blocks. It is never empty.
type Peer struct {
	Any    bool
	Addrs  []netip.Addr   // sorted
	Blocks []netip.Prefix // of either family; they may overlap
	Except []netip.Prefix // exceptions of a single block
}

// PortRange is a range of ports, including both ends.
type PortRange struct{ First, Last uint16 }

// String is "80" or "80-90".
func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// unusual matches a character that no name in Kubernetes has.
var unusual = regexp.MustCompile(`[^a-zA-Z0-9/._-]`)

// Plain replaces each unusual byte of a name by a dot.
func Plain(text string) string {
	return unusual.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(".", len(s)) })
}

// Sample returns a state for probes that uses all features, with a pod of the address.
func Sample(addr netip.Addr) *State {
	whole := netip.PrefixFrom(addr, 0).Masked()
	half := netip.PrefixFrom(addr, 1).Masked()
	allows := []Allow{
		{Peer: Peer{Any: true}, Protocol: "UDP"},
		{Peer: Peer{Addrs: []netip.Addr{addr}}, Protocol: "TCP", Ports: []PortRange{{80, 80}, {82, 90}}},
		{Peer: Peer{Blocks: []netip.Prefix{whole}, Except: []netip.Prefix{half}}, Protocol: "SCTP",
			Named: []netip.AddrPort{netip.AddrPortFrom(addr, 80)}},
	}
	s := &State{}
	p := &Pod{Namespace: "probe", Name: "probe", Account: "probe", Addrs: []netip.Addr{addr}}
	for _, d := range []Direction{Ingress, Egress} {
		by := &Policy{Direction: d, Namespace: "probe", Name: "probe", Allows: allows}
		s.Policies = append(s.Policies, by)
		p.isolate(by)
	}
	s.Pods = []*Pod{p}
	return s
}
