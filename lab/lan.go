// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

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
	all := []machine{routerMachine(), clientMachine()}
	for _, n := range nodes {
		all = append(all, n.lan())
	}
	return all
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
	var ops []link.Op
	for _, a := range m.addrs(s) {
		ops = append(ops, link.Neighbour{Addr: a, MAC: lanMAC(m.host), Dev: devNIC})
	}
	return ops
}
