// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Topology describes a network to build. The zero value of every field but Nodes is usable.
type Topology struct {
	// Nodes are built in this order: the n-th gets the n-th node address and pod range of the address plan.
	Nodes []NodeSpec
	// Stack selects the IP families of the whole lab. The zero value is IPv4 alone.
	Stack Stack
	// PodNetwork is how a node wires its pods. The zero value is Bridge.
	PodNetwork PodNetwork
	// Overlay is how pod traffic crosses from node to node. The zero value is Auto.
	Overlay Overlay
}

// NodeSpec describes one node.
type NodeSpec struct {
	// Name is unique in the lab among nodes, pods and hosts: lower case letters, digits and dashes.
	Name string
	// Pods are the pods that the node starts with. Lab.AddPod adds more.
	Pods []PodSpec
}

// PodSpec describes one pod. Names with a namespace ("shop/web-1") are allowed; the lab does not interpret them.
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
	// Routed gives every pod a veth (cali*), a /32 (/128) route and a link-local gateway by proxy ARP, as Calico does.
	Routed
)

// Overlay is how a packet between pods crosses from one node to another.
type Overlay uint8

// The overlays. The zero value is Auto.
const (
	// Auto selects IPIP if the kernel supports it, else VXLAN, else Direct. Lab.Overlay returns the choice.
	Auto Overlay = iota
	// IPIP wraps the packet in another IP header on tunl0 (IPv6 in IPv6 on ip6tnl for IPv6 pods).
	IPIP
	// VXLAN wraps the frame in UDP on a vxlan device.
	VXLAN
	// Direct routes the packet as it is over the underlay.
	Direct
)

// String returns "bridge" or "routed", the words that ParsePodNetwork reads.
func (p PodNetwork) String() string { return podNetworks.name(p) }

// ParsePodNetwork returns the pod network named "bridge" or "routed". Any other word is an error.
func ParsePodNetwork(s string) (PodNetwork, error) { return podNetworks.parse("pod network", s) }

// String returns "auto", "ipip", "vxlan" or "direct", the words that ParseOverlay reads.
func (o Overlay) String() string { return overlays.name(o) }

// ParseOverlay returns the overlay named "auto", "ipip", "vxlan" or "direct". Any other word is an error.
func ParseOverlay(s string) (Overlay, error) { return overlays.parse("overlay", s) }

var (
	podNetworks = names[PodNetwork]{"bridge", "routed"}
	overlays    = names[Overlay]{"auto", "ipip", "vxlan", "direct"}
)

// names holds the words for the values 0, 1, 2... of a type.
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

// Family is an IP family: 4 or 6.
type Family uint8

// The IP families.
const (
	V4 Family = 4
	V6 Family = 6
)

// String returns "v4" or "v6".
func (f Family) String() string {
	if f == V6 {
		return "v6"
	}
	return "v4"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return V4
	}
	return V6
}

// Stack selects the IP families of a lab.
type Stack uint8

// The stacks. The zero value is IPv4 alone.
const (
	IPv4 Stack = iota
	IPv6
	Dual
)

// Families lists the families of the stack, the primary one first.
func (s Stack) Families() []Family {
	switch s {
	case IPv6:
		return []Family{V6}
	case Dual:
		return []Family{V4, V6}
	default:
		return []Family{V4}
	}
}

// StackOf returns the stack of IP families. None means both. The error names families that no lab has together.
func StackOf(families ...Family) (Stack, error) {
	if len(families) == 0 {
		return Dual, nil
	}
	for _, s := range []Stack{IPv4, IPv6, Dual} {
		if slices.Equal(families, s.Families()) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("IP families %v: want V4, V6, or V4 and V6", families)
}

// String returns "4", "6" or "dual", the words that ParseStack reads.
func (s Stack) String() string { return stacks.name(s) }

// ParseStack returns the stack named "4", "6" or "dual". Any other word is an error.
func ParseStack(s string) (Stack, error) { return stacks.parse("IP stack", s) }

var stacks = names[Stack]{"4", "6", "dual"}

const (
	clientName = "client"
	routerName = "router"
	switchName = "underlay"
)

var (
	// nodeName is a DNS label, as Kubernetes requires of most names.
	nodeName = lazily(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// podName is a subdomain, perhaps after a namespace and a slash. To count its length here would take 4 ms to
	// compile.
	podName = lazily(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// lazily returns the pattern compiled on first use. Patterns that count take a tenth of a millisecond, in each process.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Validate returns an error that lists everything wrong with the topology, or nil.
func (t Topology) Validate() error {
	errs := []error{
		stacks.check("IP stack", t.Stack),
		podNetworks.check("pod network", t.PodNetwork),
		overlays.check("overlay", t.Overlay),
	}
	if len(t.Nodes) == 0 {
		errs = append(errs, errors.New("no nodes: a lab has at least one"))
	}
	if len(t.Nodes) > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: the LAN has addresses for %d", len(t.Nodes), maxNodes))
	}
	names := newNames()
	for i, n := range t.Nodes {
		for _, err := range names.addNode(n) {
			errs = append(errs, fmt.Errorf("node %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// taken is the set of names of all machines. They are unique because messages and commands use nothing else.
type taken map[string]bool

func newNames() taken { return taken{clientName: true, routerName: true, switchName: true} }

// addNode adds the names of a node and its pods, and returns an error for each that is invalid or taken.
func (t taken) addNode(n NodeSpec) []error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", what, err))
		}
	}
	note(prefix("node ", n.Name), t.add(n.Name, nodeName()))
	if most := lastPod - firstPod + 1; len(n.Pods) > most {
		errs = append(errs, fmt.Errorf("%s: %d pods: a node has addresses for %d", n.Name, len(n.Pods), most))
	}
	for i, p := range n.Pods {
		if p.Name == "" {
			note(fmt.Sprintf("pod %d: ", i+1), errNoName)
			continue
		}
		note(prefix("pod ", p.Name), t.addPod(p))
	}
	return errs
}

// prefix returns the beginning of a message about the named thing, or "" if it has no name.
func prefix(kind, name string) string {
	if name == "" {
		return ""
	}
	return kind + name + ": "
}

// longestName is the length of the longest subdomain of DNS (RFC 1123, as Kubernetes reads it).
const longestName = 253

func (t taken) addPod(p PodSpec) error {
	if name := p.Name[strings.Index(p.Name, "/")+1:]; len(name) > longestName {
		return errBadName
	}
	return t.add(p.Name, podName())
}

var (
	errNoName  = errors.New("no name")
	errBadName = errors.New("bad name: want lower case letters, digits and dashes")
)

func (t taken) add(name string, pattern *regexp.Regexp) error {
	switch {
	case name == "":
		return errNoName
	case !pattern.MatchString(name):
		return errBadName
	case t[name]:
		return errors.New("name is taken")
	}
	t[name] = true
	return nil
}
