// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"

	"github.com/viplab/viplab/internal/lab/link"
)

// podNetwork is how the pods of a node are wired. Each method that returns changes returns those of one namespace.
type podNetwork interface {
	// prepare returns the changes of the node before it has pods.
	prepare(n *Node, s Stack) []link.Op
	// port returns the changes for the node's end of a pod's veth.
	port(p *Pod, s Stack) []link.Op
	// unport undoes port, but keeps the device, which then leads nowhere.
	unport(p *Pod, s Stack) []link.Op
	// pod returns the changes of the pod: addresses and routes.
	pod(p *Pod, s Stack) []link.Op
	// neighbours returns the changes that make one pod of a node known to another.
	neighbours(peer *Pod, s Stack) []link.Op
	// portMAC returns the MAC of the node's end.
	portMAC(p *Pod) link.MAC
}

func newPodNetwork(p PodNetwork) podNetwork {
	if p == Routed {
		return routed{}
	}
	return bridged{}
}

// bridged puts the pods of a node on one bridge.
type bridged struct{}

func (bridged) prepare(n *Node, s Stack) []link.Op {
	mac := podMAC(n.number, gatewayPod)
	ops := []link.Op{link.Bridge{Dev: devBridge, MAC: mac, MTU: underlayMTU}}
	for i, f := range s.Families() {
		if f == V6 {
			ops = append(ops, linkLocal(devBridge, mac))
		}
		gateway := podAddr(f, n.number, gatewayPod)
		ops = append(ops, link.Addr{Dev: devBridge, Prefix: netip.PrefixFrom(gateway, n.podCIDRs[i].Bits())})
	}
	return ops
}

func (bridged) port(p *Pod, s Stack) []link.Op {
	port := p.port()
	ops := []link.Op{link.Port{Dev: port, Bridge: devBridge}, link.Hairpin{Dev: port}}
	return append(ops, neighbour(devBridge, p)...)
}

func (bridged) unport(p *Pod, _ Stack) []link.Op {
	return append(removals(neighbour(devBridge, p)), link.Disable{Dev: p.port()})
}

func (bridged) pod(p *Pod, s Stack) []link.Op {
	node := p.node.number
	var ops []link.Op
	for i, f := range s.Families() {
		gateway := podAddr(f, node, gatewayPod)
		ops = append(ops,
			link.Addr{Dev: devNIC, Prefix: netip.PrefixFrom(p.Addr(f), p.node.podCIDRs[i].Bits())},
			link.Route{To: everywhere(f), Via: gateway, Dev: devNIC},
			link.Neighbour{Addr: gateway, MAC: podMAC(node, gatewayPod), Dev: devNIC})
	}
	return ops
}

func (bridged) neighbours(peer *Pod, _ Stack) []link.Op { return neighbour(devNIC, peer) }

func (bridged) portMAC(p *Pod) link.MAC {
	mac := podMAC(p.node.number, p.host)
	mac[0] |= 4 // differs from the pod's, and is still locally administered
	return mac
}

// routed gives each pod a route of its own and the same gateway, which no machine has: the node answers ARP for it on
// every port. IPv6 needs no such trick, because a link-local address may be the same on every link.
type routed struct{}

var (
	routedMAC     = link.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	routedGateway = netip.AddrFrom4([4]byte{169, 254, 1, 1})
)

func (routed) prepare(n *Node, _ Stack) []link.Op {
	// Addresses without a pod must not leave by the default route.
	return each(n.podCIDRs, func(p netip.Prefix) link.Op { return link.Route{To: p, Blackhole: true} })
}

func (routed) port(p *Pod, s Stack) []link.Op {
	port := p.port()
	ops := []link.Op{link.PromptProxy{Dev: port}, link.ProxyARP{Dev: port}}
	if s != IPv4 {
		ops = append(ops, linkLocal(port, routedMAC))
	}
	return append(ops, toPod(p)...)
}

func (routed) unport(p *Pod, _ Stack) []link.Op { return removals(toPod(p)) }

// toPod returns the routes and neighbour entries of a node for a pod of its Routed network.
func toPod(p *Pod) []link.Op {
	routes := each(p.Addrs(), func(a netip.Addr) link.Op { return link.Route{To: single(a), Dev: p.port()} })
	return append(routes, neighbour(p.port(), p)...)
}

func (routed) pod(p *Pod, s Stack) []link.Op {
	var ops []link.Op
	for _, f := range s.Families() {
		gateway := routedMAC.LinkLocal()
		if f == V4 {
			gateway = routedGateway
		}
		ops = append(ops, link.Addr{Dev: devNIC, Prefix: single(p.Addr(f))})
		if f == V4 {
			ops = append(ops, link.Route{To: single(gateway), Dev: devNIC})
		}
		ops = append(ops, link.Route{To: everywhere(f), Via: gateway, Dev: devNIC})
	}
	return ops
}

func (routed) neighbours(*Pod, Stack) []link.Op { return nil }
func (routed) portMAC(*Pod) link.MAC            { return routedMAC }

// neighbour returns the neighbour entries for the pod on its link.
func neighbour(d link.Dev, p *Pod) []link.Op {
	return each(p.Addrs(), func(a netip.Addr) link.Op {
		return link.Neighbour{Addr: a, MAC: podMAC(p.node.number, p.host), Dev: d}
	})
}
