// SPDX-License-Identifier: Apache-2.0

// Package lab builds a cluster's network out of Linux namespaces: nodes, pods, a client outside the cluster and a
// router. It does not depend on Services, proxiers or test frameworks. It runs on Linux alone, and as root: tests and
// commands of others enter a user namespace first, with sandbox.Main or labtest.Main.
//
//	        client .201 (and .202 - .211)          router .1
//	             |                                    |
//	=============+=====+==============================+==========   LAN 192.168.7.0/24, fd00:7::/64
//	                   |                              |
//	node 1: .11 (and .111)                 node 2: .12 (and .112)
//	  |   tunnel 10.244.1.254  - - - - - - - tunnel 10.244.2.254    where the overlay is IPIP or VXLAN
//	  |                                      |
//	cni0 10.244.1.1                        cni0 10.244.2.1          where the pod network is Bridge
//	  |          |                           |
//	10.244.1.2  10.244.1.3 ...             10.244.2.2 ...           pods
//
// The address plan is fixed. IPv6 addresses read like the IPv4 ones: fd00:7::11 is node 1, fd00:10:244:1::2 its first
// pod. The n-th node has the pod ranges 10.244.n.0/24 and fd00:10:244:n::/64 out of 10.244.0.0/16 and fd00:10:244::/48.
// A node has a second address on the same device, and the client has ten more. They answer packets, and a socket may
// bind to them, but the kernel never chooses them as a source by itself. All default routes lead to the router, which
// knows only the LAN: it answers packets to any other destination with "network unreachable".
//
// Pods and nodes talk without address translation. To all other hosts, a pod's packets come from its node's address:
// see link.Masquerade.
//
// A lab that has been built is ready: no first packet is late or lost. Build waits for devices (link.Ready), IPv6
// addresses skip duplicate address detection, and neighbour entries are static, except those of gateways of Routed pods
// and of addresses that a user adds. An address that is used again keeps its MAC. So pods keep the entries for pods of
// their node that are gone: what they send there is lost.
package lab

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/viplab/viplab/lab/netns"
)

// Lab is a running network, which ends with this process at the latest. Its methods may be called from any goroutine.
type Lab struct {
	topology Topology
	settings settings
	network  podNetwork
	overlay  overlay
	reason   string // why this overlay was chosen

	underlay, router, client *Host

	// change is held for reading while pods change, and for writing while nodes change, which concern all machines.
	change sync.RWMutex
	// mu guards the fields below. It is held only for single reads and writes.
	mu     sync.Mutex
	closed bool
	nodes  []*Node // ordered by number
	pods   map[string]*Pod
	names  taken // of all machines, including those being made
}

// Nodes returns the nodes in the order of the address plan.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.nodes)
}

// Node returns the node of that name, or nil.
func (l *Lab) Node(name string) *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.nodes, func(n *Node) bool { return n.Name() == name }); i >= 0 {
		return l.nodes[i]
	}
	return nil
}

// Pod returns the pod of that name, or nil. Pods of a cluster are named NAMESPACE/NAME.
func (l *Lab) Pod(name string) *Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name]
}

// Pods returns all pods, sorted by name.
func (l *Lab) Pods() []*Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.pods), func(a, b *Pod) int { return a.Addrs()[0].Compare(b.Addrs()[0]) })
}

// Client returns a machine on the LAN that does not belong to the cluster.
func (l *Lab) Client() *Host { return l.client }

// Router returns the default gateway of the nodes and the client.
func (l *Lab) Router() *Host { return l.router }

// Underlay returns the switch of the LAN: a namespace with a bridge that sees all traffic between machines.
func (l *Lab) Underlay() *netns.NS { return l.underlay.NS }

// Stack returns the lab's IP families.
func (l *Lab) Stack() Stack { return l.topology.Stack }

// Topology returns the topology that the lab was built from.
func (l *Lab) Topology() Topology { return l.topology }

// Overlay returns the overlay in use, which is never Auto, and the reason for the choice.
func (l *Lab) Overlay() (Overlay, string) { return l.overlay.kind(), l.reason }

// ClusterCIDRs returns the ranges of all pods, one per family.
func (l *Lab) ClusterCIDRs() []netip.Prefix {
	return each(l.Stack().Families(), clusterCIDR)
}

// Close removes the lab. It does not wait for the kernel, which frees each namespace with its last socket and process.
func (l *Lab) Close() error {
	l.change.Lock()
	defer l.change.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	errs := each(l.nodes, (*Node).close)
	for _, h := range []*Host{l.client, l.router, l.underlay} {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}
