// SPDX-License-Identifier: Apache-2.0

// Package lab builds a cluster's network out of Linux namespaces: nodes, pods, a client outside the cluster and a
// router, wired with veth pairs, bridges, routes and tunnels. It knows nothing of Services, proxiers or test
// frameworks.
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
// A node has a second address on the same device, and the client has ten more; they are there to be talked to, or from
// when asked for, and are never chosen as a source by themselves. Everybody's default route leads to the router, which
// knows the LAN and nothing else: what no one routes is answered by its "network unreachable".
//
// Pods and nodes talk without address translation. A pod that talks to anything else, such as the client, gets its
// node's address, as network plugins do it; see link.Masquerade for the rule, which sits in a table of its own.
//
// A lab that has been built is ready: no first packet is late or lost. To that end devices are waited for (link.Ready),
// IPv6 addresses skip duplicate address detection, and neighbours are written down instead of asked for, except that a
// Routed pod asks for its gateway. MACs belong to addresses, so an address that is used again is reachable at once.
// What a person adds to the lab later, an address that no one was told about, is found by ARP as anywhere.
package lab

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/viplab/viplab/lab/netns"
)

// Lab is a network that runs. It is held by file descriptors of this process and goes when they go. Its methods may be
// called from any goroutine.
type Lab struct {
	topology Topology
	settings settings
	network  podNetwork
	overlay  overlay
	reason   string // why that overlay

	underlay, router, client *Host

	// change is held for reading while pods change, and for writing while nodes change: those concern every node.
	change sync.RWMutex
	// mu guards the fields below, for the moment of looking or writing.
	mu     sync.Mutex
	closed bool
	nodes  []*Node // in order of their numbers
	pods   map[string]*Pod
	names  taken // of all machines, those being made included
}

// Nodes are the nodes in the order of the address plan.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.nodes)
}

// Node is the node of that name, or nil.
func (l *Lab) Node(name string) *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

// Pod is the pod of that name, or nil.
func (l *Lab) Pod(name string) *Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name]
}

// Pods are all pods, by name.
func (l *Lab) Pods() []*Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.pods), func(a, b *Pod) int { return a.Addrs()[0].Compare(b.Addrs()[0]) })
}

// Client is a machine on the LAN that does not belong to the cluster.
func (l *Lab) Client() *Host { return l.client }

// Router is the default gateway of the nodes and the client.
func (l *Lab) Router() *Host { return l.router }

// Underlay is the switch of the LAN: a namespace with a bridge, whose ports see what nodes, client and router send.
func (l *Lab) Underlay() *netns.NS { return l.underlay.NS }

// Stack is the families of the lab.
func (l *Lab) Stack() Stack { return l.topology.Stack }

// Topology is what the lab was built from.
func (l *Lab) Topology() Topology { return l.topology }

// Overlay is how pod traffic crosses from node to node, never Auto, and why it was chosen.
func (l *Lab) Overlay() (Overlay, string) { return l.overlay.kind(), l.reason }

// ClusterCIDRs are the ranges of all pods, one per family.
func (l *Lab) ClusterCIDRs() []netip.Prefix { return clusterCIDRs(l.Stack()) }

// Close takes the lab down. It returns at once; the kernel frees what is left in the background, as soon as no socket
// or process in the lab is left either.
func (l *Lab) Close() error {
	l.change.Lock()
	defer l.change.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.close())
	}
	for _, h := range []*Host{l.client, l.router, l.underlay} {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}
