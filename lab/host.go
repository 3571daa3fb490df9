package lab

import (
	"net/netip"

	"github.com/viplab/viplab/lab/netns"
)

// Host is a machine in the lab: a network namespace with addresses. Nodes and pods are hosts too.
type Host struct {
	*netns.NS
	addrs []netip.Addr
}

// Addr is the host's primary address of a family, or the zero Addr if the host has none.
func (h *Host) Addr(f Family) netip.Addr {
	for _, a := range h.addrs {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Addrs are the addresses the lab gave the host, of all families, primary ones first. What was added to a device by
// someone else later is not among them: LocalAddrs asks the kernel.
func (h *Host) Addrs() []netip.Addr { return h.addrs }

// Node is a cluster node.
type Node struct {
	Host
	podCIDRs []netip.Prefix
}

// PodCIDRs are the node's pod ranges, one per family of the lab.
func (n *Node) PodCIDRs() []netip.Prefix { return n.podCIDRs }

// Pod is a pod on a node.
type Pod struct {
	Host
	node *Node
}

// Node is the node the pod runs on.
func (p *Pod) Node() *Node { return p.node }
