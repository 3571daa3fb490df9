// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Resolve asks all neighbours on a device for an address, by ARP or neighbour discovery, and returns the link address
// of the first that claims it, or nil. To prove that none does, it asks for the fences afterwards: addresses known to
// be on the link, of the same family, at least one. It neither reads nor changes the neighbour table.
//
// Resolve misses the answer of a neighbour that delays it (proxy_delay, 0.8 s by default).
func Resolve(ctx context.Context, ns *netns.NS, device string, target netip.Addr,
	fences ...netip.Addr) (net.HardwareAddr, error) {
	r, err := newResolver(ns, device, target)
	if err == nil {
		err = errors.Join(r.run(ctx, target, fences), r.close())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: resolve %s on %s: %w", ns.Name(), target, device, err)
	}
	return r.answers[target], nil
}

type resolver struct {
	fd      int
	index   int
	mac     net.HardwareAddr
	own     netip.Addr
	answers map[netip.Addr]net.HardwareAddr
}

func newResolver(ns *netns.NS, device string, target netip.Addr) (*resolver, error) {
	l, err := ns.Netlink().LinkByName(device)
	if err != nil {
		return nil, err
	}
	r := &resolver{index: l.Attrs().Index, mac: l.Attrs().HardwareAddr, answers: map[netip.Addr]net.HardwareAddr{}}
	if r.own, err = addressOn(ns, l, target); err != nil {
		return nil, err
	}
	proto := uint16(unix.ETH_P_ARP)
	if target.Is6() {
		proto = unix.ETH_P_IPV6
	}
	bigEndian := proto<<8 | proto>>8
	if r.fd, err = ns.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: bigEndian, Ifindex: r.index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind: %w", err), unix.Close(r.fd))
	}
	return r, nil
}

// addressOn returns an address of the device, of the family of target.
func addressOn(ns *netns.NS, l netlink.Link, target netip.Addr) (netip.Addr, error) {
	family := netlink.FAMILY_V4
	if target.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := netns.List(func() ([]netlink.Addr, error) { return ns.Netlink().AddrList(l, family) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		if own, ok := netip.AddrFromSlice(a.IP); ok && !own.IsLinkLocalUnicast() {
			return own.Unmap(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address of the family of %s", target)
}

// close takes some 10 ms, because the kernel waits until every CPU has released the packet socket.
func (r *resolver) close() error { return unix.Close(r.fd) }

func (r *resolver) run(ctx context.Context, target netip.Addr, fences []netip.Addr) error {
	if len(fences) == 0 {
		return errors.New("no fence")
	}
	cpu, err := presentCPU()
	if err != nil {
		return err
	}
	var failed error
	err = onCPU(cpu, func() {
		if failed = r.ask(target); failed != nil || r.has(target) {
			return
		}
		for i := range max(promptEchoes, len(fences)) {
			if failed = r.fence(ctx, fences[i%len(fences)]); failed != nil || r.has(target) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

func (r *resolver) fence(ctx context.Context, fence netip.Addr) error {
	delete(r.answers, fence)
	for {
		if err := r.ask(fence); err != nil {
			return err
		}
		if r.has(fence) {
			return nil
		}
		pollIn(r.fd, echoAgain)
		if r.has(fence) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("fence %s did not answer: %w", fence, err)
		}
	}
}

// has reads the packets so far and reports whether an answer for a was among them.
func (r *resolver) has(a netip.Addr) bool {
	var buf [1500]byte
	for {
		n, from, err := unix.Recvfrom(r.fd, buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return r.answers[a] != nil
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype != unix.PACKET_OUTGOING {
			r.take(buf[:n])
		}
	}
}

func (r *resolver) take(frame []byte) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok && arp.Operation == layers.ARPReply {
		if a, ok := netip.AddrFromSlice(arp.SourceProtAddress); ok {
			r.answers[a] = bytes.Clone(arp.SourceHwAddress)
		}
	}
	if na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement); ok {
		if a, ok := netip.AddrFromSlice(na.TargetAddress); ok {
			r.answers[a] = bytes.Clone(p.LinkLayer().LinkFlow().Src().Raw())
		}
	}
}

// ask sends an ARP request or a neighbour solicitation to everyone on the link.
func (r *resolver) ask(target netip.Addr) error {
	frame := r.arpRequest
	if target.Is6() {
		frame = r.solicitation
	}
	packet, err := serialize(frame(target)...)
	if err != nil {
		return err
	}
	if err := unix.Sendto(r.fd, packet, 0, &unix.SockaddrLinklayer{Ifindex: r.index}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

func (r *resolver) arpRequest(target netip.Addr) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		&layers.Ethernet{SrcMAC: r.mac, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: r.mac, SourceProtAddress: r.own.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
		},
	}
}

// solicitation returns a request to the multicast group of addresses that end like the target's (RFC 4861 4.3).
func (r *resolver) solicitation(target netip.Addr) []gopacket.SerializableLayer {
	t := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], t[13:])
	ip := &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: r.own.AsSlice(), DstIP: group[:],
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip) // fails only for other layers
	return []gopacket.SerializableLayer{
		&layers.Ethernet{
			SrcMAC: r.mac, DstMAC: append(net.HardwareAddr{0x33, 0x33}, group[12:]...),
			EthernetType: layers.EthernetTypeIPv6,
		},
		ip, icmp,
		&layers.ICMPv6NeighborSolicitation{
			TargetAddress: target.AsSlice(),
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: r.mac}},
		},
	}
}
