// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Topology is a network to build, as data. The zero value of every field is a usable choice, but a topology has at
// least one node.
type Topology struct {
	// Nodes are built in this order; the n-th one gets the n-th node address and pod range of the plan.
	Nodes []NodeSpec
	// Stack is the IP families of everything in the lab.
	Stack Stack
	// PodNetwork is how a node wires its pods.
	PodNetwork PodNetwork
	// Overlay is how pod traffic crosses from node to node.
	Overlay Overlay
}

// NodeSpec is one node.
type NodeSpec struct {
	// Name is unique in the lab among nodes, pods and hosts: lower case letters, digits and dashes.
	Name string
	// Pods are the pods the node starts with; more can be added while the lab runs.
	Pods []PodSpec
}

// PodSpec is one pod. Namespaced names ("shop/web-1") are allowed: a lab does not interpret them.
type PodSpec struct {
	Name string
}

// PodNetwork is how pods are wired inside a node.
type PodNetwork uint8

// The pod networks. The zero value is Bridge.
const (
	// Bridge puts the pods of a node on one Linux bridge, cni0, with the first address of the node's pod range as their
	// gateway, as the bridge CNI plugin and flannel do. bridge-nf-call-iptables is 1 and every port has hairpin mode.
	Bridge PodNetwork = iota
	// Routed gives every pod a veth of its own (cali*), a /32 (/128) route to it in the node, and a link-local gateway
	// answered by proxy ARP, as Calico does.
	Routed
)

// Overlay is how a packet between pods crosses from one node to another.
type Overlay uint8

// The overlays. The zero value is Auto.
const (
	// Auto takes IPIP where the kernel has it, else VXLAN, else Direct; Lab.Overlay tells which, and why.
	Auto Overlay = iota
	// IPIP wraps the packet in another IP header on tunl0 (IPv6 in IPv6 on ip6tnl for IPv6 pods).
	IPIP
	// VXLAN wraps the frame in UDP on a vxlan device.
	VXLAN
	// Direct routes the packet as it is over the underlay.
	Direct
)

// String is "bridge" or "routed", as ParsePodNetwork takes it.
func (p PodNetwork) String() string { return podNetworks.name(p) }

// ParsePodNetwork reads "bridge" or "routed".
func ParsePodNetwork(s string) (PodNetwork, error) { return podNetworks.parse("pod network", s) }

// String is "auto", "ipip", "vxlan" or "direct", as ParseOverlay takes it.
func (o Overlay) String() string { return overlays.name(o) }

// ParseOverlay reads "auto", "ipip", "vxlan" or "direct".
func ParseOverlay(s string) (Overlay, error) { return overlays.parse("overlay", s) }

var (
	podNetworks = names[PodNetwork]{"bridge", "routed"}
	overlays    = names[Overlay]{"auto", "ipip", "vxlan", "direct"}
)

// names are the words for the values 0, 1, 2... of a type.
type names[T ~uint8] []string

func (n names[T]) name(v T) string {
	if int(v) < len(n) {
		return n[v]
	}
	return fmt.Sprintf("unknown (%d)", v)
}

func (n names[T]) parse(what, s string) (T, error) {
	if i := slices.Index(n, s); i >= 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("unknown %s %q: want %s", what, s, strings.Join(n, ", "))
}

func (n names[T]) check(what string, v T) error {
	if int(v) < len(n) {
		return nil
	}
	return fmt.Errorf("unknown %s %d: want %s", what, v, strings.Join(n, ", "))
}
