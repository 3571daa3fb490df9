// SPDX-License-Identifier: Apache-2.0

// Package policy is what enforcers of NetworkPolicy share: it compiles the policies of a cluster into addresses and
// ports for one node, and makes a spec.Proxier of a Mechanism that programs them.
package policy

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// State is what is to be enforced on a node. It is never changed.
type State struct {
	// Pods are those of the node, by namespace and name. Pods on the node's own network are not among them, nor those that
	// have ended or have no address.
	Pods []*Pod
	// Policies are those that isolate one of the pods, ingress first, then by namespace and name.
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

// Policies are those that isolate the pod in a direction.
func (p *Pod) Policies(d Direction) []*Policy {
	if d == Egress {
		return p.Egress
	}
	return p.Ingress
}

// Label is "namespace/name", without what could break out of a rule.
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
	// Allows are what it lets through: whatever fits one of them.
	Allows []Allow
}

// Label is "namespace/name", without what could break out of a rule.
func (p *Policy) Label() string { return Plain(p.Namespace + "/" + p.Name) }

// Allow is packets that a policy lets through.
type Allow struct {
	// Peer is the other side.
	Peer Peer
	// Protocol is empty for any.
	Protocol corev1.Protocol
	// Ports are destination ports, in order and apart from one another. None stands for all, unless there are Named ones.
	Ports []PortRange
	// Named are destinations that a named port has led to.
	Named []netip.AddrPort
	// Why is the place in the policy: "ingress[0] from[1] port http".
	Why string
}

// Peer is the other side of a connection: anybody, these addresses, or these blocks. One that nobody can be is in no
// Allow.
type Peer struct {
	Any    bool
	Addrs  []netip.Addr   // in order
	Blocks []netip.Prefix // of either family; they may overlap
	Except []netip.Prefix // of the block, where there is one
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// String is "80" or "80-90".
func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Plain is a text with a dot for each byte that no name in Kubernetes has. Names that the API server has admitted stay
// as they are.
func Plain(text string) string {
	out := []byte(text)
	for i, b := range out {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '/', b == '-', b == '.', b == '_':
		default:
			out[i] = '.'
		}
	}
	return string(out)
}
