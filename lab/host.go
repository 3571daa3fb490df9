// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

// Host is a machine in the lab: a network namespace with addresses. Nodes and pods are hosts too.
type Host struct {
	*netns.NS
	addrs []netip.Addr

	// awaited holds what ready waits for. Its maker owns it at first, then the lock for the kind of change.
	awaited []link.Condition
}

// close closes the host. It accepts one that is only partly made.
func (h *Host) close() error {
	if h.NS == nil {
		return nil
	}
	return h.NS.Close()
}

// apply changes the host's network and records what ready has to wait for.
func (h *Host) apply(ops ...link.Op) error {
	h.awaited = append(h.awaited, link.Consequences(ops...)...)
	return link.Apply(h.NS, ops...)
}

// ready waits until all applied changes have taken effect.
func (h *Host) ready(ctx context.Context) error { return h.effect()(ctx) }

// effect returns a function that waits until all changes that have been applied so far have taken effect.
func (h *Host) effect() func(context.Context) error {
	conditions := h.awaited
	h.awaited = nil
	return func(ctx context.Context) error { return link.Ready(ctx, h.NS, conditions...) }
}

// Addr returns the host's primary address of a family, or the zero Addr if it has none.
func (h *Host) Addr(f Family) netip.Addr {
	if i := slices.IndexFunc(h.addrs, func(a netip.Addr) bool { return FamilyOf(a) == f }); i >= 0 {
		return h.addrs[i]
	}
	return netip.Addr{}
}

// Addrs returns the addresses that the lab gave the host, primary ones first. LocalAddrs includes later ones.
func (h *Host) Addrs() []netip.Addr { return h.addrs }

// LocalAddrs returns all addresses that the host's devices have now, bridges included, except loopback and link-local
// ones.
func (h *Host) LocalAddrs() ([]netip.Addr, error) {
	var out []netip.Addr
	// a request for both families at once takes the lock of all network configuration
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := netns.List(func() ([]netlink.Addr, error) { return h.Netlink().AddrList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("%s: list addresses: %w", h.Name(), err)
		}
		for _, a := range found {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out, nil
}

// EgressAddr returns the source address that the host gives to packets toward dst that it masquerades. It returns the
// zero Addr if there is no route.
func (h *Host) EgressAddr(dst netip.Addr) netip.Addr {
	route, _ := h.routeTo(dst)
	addr, _ := netip.AddrFromSlice(route.Src)
	return addr.Unmap()
}

func (h *Host) routeTo(dst netip.Addr) (route netlink.Route, found bool) {
	routes, err := h.Netlink().RouteGet(dst.AsSlice())
	if err != nil || len(routes) == 0 {
		return netlink.Route{}, false
	}
	return routes[0], true
}

// NextHop returns the next hop of a packet toward dst: the gateway, or dst itself if dst is on the link or local. It
// returns the zero Addr if there is no route, or if the route has no gateway in dst's family.
func (h *Host) NextHop(dst netip.Addr) netip.Addr {
	route, found := h.routeTo(dst)
	if !found {
		return netip.Addr{}
	}
	if gateway, ok := netip.AddrFromSlice(route.Gw); ok {
		return gateway.Unmap()
	}
	return dst
}

// Node is a cluster node.
type Node struct {
	Host
	podCIDRs []netip.Prefix
	network  PodNetwork

	number int        // 1, 2, 3...: see the address plan
	tunnel tunnelDevs // the overlay's devices, if it has any

	mu       sync.Mutex   // held while the node's pods change
	pods     map[int]*Pod // by their numbers in the node's range, once they are connected
	taken    map[int]bool // the numbers of all pods, also of those that are being made
	podsMade int          // including the removed ones
	retired  []*Pod
}

// tunnelDevs holds the devices that lead to the pods of other nodes, by family.
type tunnelDevs struct{ v4, v6 link.Dev }

// PodCIDRs returns the node's pod ranges, one per family of the lab.
func (n *Node) PodCIDRs() []netip.Prefix { return n.podCIDRs }

// PodNetwork returns how the node's pods are wired.
func (n *Node) PodNetwork() PodNetwork { return n.network }

// Ports returns the names of the node's devices that lead to its pods, by pod address.
func (n *Node) Ports() map[netip.Addr]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	ports := map[netip.Addr]string{}
	for _, p := range n.podList() {
		for _, a := range p.addrs {
			ports[a] = p.port().Name
		}
	}
	return ports
}

func (n *Node) lan() machine { return nodeMachine(n.number) }

// close closes the node and its pods. It accepts a node that is only partly made.
func (n *Node) close() error {
	errs := each(n.podList(), (*Pod).close)
	return errors.Join(append(errs, n.closeRetired(), n.Host.close())...)
}

// Pod is a pod on a node.
type Pod struct {
	Host
	node   *Node
	host   int          // number in the node's range
	serial int          // counts all pods that the node ever had, from firstPod like host
	met    map[int]bool // numbers of the node's pods that this one has neighbour entries for
}

// Node returns the node that the pod runs on.
func (p *Pod) Node() *Node { return p.node }
