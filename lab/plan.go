// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

// The address plan. A machine on the LAN is known by its host number there, a node by 1, 2, 3..., a pod by its host
// number in the node's range. Addresses of both families and MACs follow from the numbers.
const (
	routerHost  = 1
	nodeHost    = 10  // node n is host 10+n
	spareHost   = 110 // and host 110+n
	maxNodes    = 90  // spare addresses end below the client's
	clientHost  = 201
	clientSpare = 10

	gatewayPod = 1
	firstPod   = 2
	lastPod    = 253
	tunnelPod  = 254
)

// underlayMTU is the MTU of Ethernet. Overlays leave less to the pods.
const underlayMTU = 1500

// lanPrefix returns the LAN's range.
func lanPrefix(f Family) netip.Prefix {
	if f == V4 {
		return netip.MustParsePrefix("192.168.7.0/24")
	}
	return netip.MustParsePrefix("fd00:7::/64")
}

// lanAddr returns the address of a host number on the LAN.
func lanAddr(f Family, host int) netip.Addr {
	if f == V4 {
		return netip.AddrFrom4([4]byte{192, 168, 7, byte(host)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 7, 14: hexHigh(host), 15: hexLow(host)})
}

// lanMAC returns the MAC of a host number on the LAN.
func lanMAC(host int) link.MAC { return link.MAC{0x02, 0, 192, 168, 7, byte(host)} }

// clusterCIDR returns the range of all pods.
func clusterCIDR(f Family) netip.Prefix {
	if f == V4 {
		return netip.MustParsePrefix("10.244.0.0/16")
	}
	return netip.MustParsePrefix("fd00:10:244::/48")
}

// podCIDR returns the pod range of a node.
func podCIDR(f Family, node int) netip.Prefix {
	if f == V4 {
		return netip.PrefixFrom(podAddr(f, node, 0), 24)
	}
	return netip.PrefixFrom(podAddr(f, node, 0), 64)
}

// podAddr returns the address of a host number in the pod range of a node.
func podAddr(f Family, node, host int) netip.Addr {
	if f == V4 {
		return netip.AddrFrom4([4]byte{10, 244, byte(node), byte(host)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: 0x02, 5: 0x44, 6: hexHigh(node), 7: hexLow(node),
		14: hexHigh(host), 15: hexLow(host)})
}

// podMAC returns the MAC of a pod: 0a:58 and the IPv4 address, as the bridge CNI plugin used to form it.
func podMAC(node, host int) link.MAC { return link.MAC{0x0a, 0x58, 10, 244, byte(node), byte(host)} }

// hexHigh and hexLow read the decimal digits of a number below 1000 as hexadecimal: 201 is 0x0201, as in fd00:7::201.
func hexHigh(n int) byte { return byte(n / 100) }
func hexLow(n int) byte  { return byte(n/10%10<<4 | n%10) }

// single returns the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// everywhere returns the destination of a default route.
func everywhere(f Family) netip.Prefix {
	if f == V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// BridgeDevice is the name of a node's bridge, if its pods are on one.
const BridgeDevice = "cni0"

// RoutedPrefix begins the names of the devices on the node that lead to routed pods.
const RoutedPrefix = "cali"

// Devices have fixed indexes, far above those of fallback devices that tunnel modules put into namespaces.
var (
	devNIC     = link.Dev{Name: "eth0", Index: 100}
	devSwitch  = link.Dev{Name: "lan0", Index: 100}
	devBridge  = link.Dev{Name: BridgeDevice, Index: 101}
	devVXLAN   = link.Dev{Name: "vxlan0", Index: 102}
	devTunnel4 = link.Dev{Name: "tunl0", Index: 103}
	devTunnel6 = link.Dev{Name: "tunl6", Index: 104}
)

// switchPort returns the LAN switch's port for a host number.
func switchPort(host int) link.Dev {
	return link.Dev{Name: fmt.Sprintf("port%d", host), Index: 1000 + host}
}

// port returns the node's end of the pod's veth: veth5 leads to 10.244.n.5, unless another pod had that address before.
// A new device, as the old one may still exist, has a new index too: the kernel deletes the connections masqueraded out
// of an index that goes down, but with a delay (nf_nat_masq_schedule).
func (p *Pod) port() link.Dev {
	prefix := "veth"
	if p.node.network == Routed {
		prefix = RoutedPrefix
	}
	return link.Dev{Name: fmt.Sprintf("%s%d", prefix, p.serial), Index: 1000 + p.serial}
}

// machine is a machine on the LAN: its host number there and the numbers of its further addresses.
type machine struct {
	host   int
	spares []int
}

func nodeMachine(number int) machine {
	return machine{host: nodeHost + number, spares: []int{spareHost + number}}
}

func clientMachine() machine {
	m := machine{host: clientHost}
	for i := range clientSpare {
		m.spares = append(m.spares, clientHost+1+i)
	}
	return m
}

func routerMachine() machine { return machine{host: routerHost} }

// machines returns all machines on the switch.
func machines(nodes []*Node) []machine {
	return append([]machine{routerMachine(), clientMachine()}, each(nodes, (*Node).lan)...)
}

// addrs returns the machine's addresses: the primary one of each family, then the others.
func (m machine) addrs(s Stack) []netip.Addr {
	var out []netip.Addr
	for _, host := range append([]int{m.host}, m.spares...) {
		for _, f := range s.Families() {
			out = append(out, lanAddr(f, host))
		}
	}
	return out
}

// attach returns the changes that connect a namespace to the LAN as the machine: loopback, addresses and default route.
func (m machine) attach(s Stack, underlay *netns.NS) []link.Op {
	ops := []link.Op{
		link.Up{Dev: link.Loopback},
		link.Veth{
			Dev: devNIC, MAC: lanMAC(m.host), MTU: underlayMTU,
			Peer: link.Peer{Dev: switchPort(m.host), MAC: link.MAC{0x02, 1, 192, 168, 7, byte(m.host)}, NS: underlay},
		},
		link.Up{Dev: devNIC},
	}
	for _, f := range s.Families() {
		if f == V6 {
			ops = append(ops, linkLocal(devNIC, lanMAC(m.host)))
		}
		bits := lanPrefix(f).Bits()
		ops = append(ops, link.Addr{Dev: devNIC, Prefix: netip.PrefixFrom(lanAddr(f, m.host), bits)})
		for _, host := range m.spares {
			ops = append(ops, link.Addr{Dev: devNIC, Prefix: netip.PrefixFrom(lanAddr(f, host), bits), Spare: true})
		}
		if m.host != routerHost {
			ops = append(ops, link.Route{To: everywhere(f), Via: lanAddr(f, routerHost), Dev: devNIC})
		}
	}
	return ops
}

// linkLocal returns the link-local address that the kernel would derive itself, but usable without delay.
func linkLocal(d link.Dev, mac link.MAC) link.Addr {
	return link.Addr{Dev: d, Prefix: netip.PrefixFrom(mac.LinkLocal(), 64)}
}

// neighbours returns the neighbour entries of the machine's addresses, for another machine on the LAN.
func (m machine) neighbours(s Stack) []link.Op {
	return each(m.addrs(s), func(a netip.Addr) link.Op {
		return link.Neighbour{Addr: a, MAC: lanMAC(m.host), Dev: devNIC}
	})
}
