// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Segment is a TCP segment that no socket would send.
type Segment struct {
	Src, Dst                netip.AddrPort
	Seq, Ack                uint32
	SYN, ACK, FIN, RST, PSH bool
	// Window is the value in the header, not scaled.
	Window  uint16
	Payload []byte
}

// Packet returns the segment as an IP packet with correct checksums. (With a wrong one, conntrack would call the packet
// invalid for that reason alone.)
func (s Segment) Packet() ([]byte, error) {
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.Src.Port()), DstPort: layers.TCPPort(s.Dst.Port()),
		Seq: s.Seq, Ack: s.Ack, Window: s.Window,
		SYN: s.SYN, ACK: s.ACK, FIN: s.FIN, RST: s.RST, PSH: s.PSH,
	}
	return packet(s.Src.Addr(), s.Dst.Addr(), layers.IPProtocolTCP, tcp, s.Payload)
}

// Datagram is a UDP datagram with any source.
type Datagram struct {
	Src, Dst netip.AddrPort
	Payload  []byte
}

// Packet returns the datagram as an IP packet with correct checksums.
func (d Datagram) Packet() ([]byte, error) {
	udp := &layers.UDP{SrcPort: layers.UDPPort(d.Src.Port()), DstPort: layers.UDPPort(d.Dst.Port())}
	return packet(d.Src.Addr(), d.Dst.Addr(), layers.IPProtocolUDP, udp, d.Payload)
}

type transport interface {
	gopacket.SerializableLayer
	SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
}

func packet(src, dst netip.Addr, proto layers.IPProtocol, t transport, payload []byte) ([]byte, error) {
	const ttl = 64
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	if src.Is4() {
		ip = &layers.IPv4{Version: 4, TTL: ttl, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	} else {
		ip = &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	if err := t.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, fmt.Errorf("packet %s > %s: %w", src, dst, err)
	}
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, options, ip, t, gopacket.Payload(payload)); err != nil {
		return nil, fmt.Errorf("packet %s > %s: %w", src, dst, err)
	}
	return buf.Bytes(), nil
}

// SendRaw sends an IP packet, header included, from a namespace. The kernel routes it by its destination and passes it
// through the hooks for outgoing packets, whatever its source.
func SendRaw(ns *netns.NS, packet []byte) error {
	if len(packet) < 20 {
		return fmt.Errorf("%s: send raw packet: %d bytes are not an IP packet", ns.Name(), len(packet))
	}
	dst, domain := netip.AddrPort{}, unix.AF_INET
	if packet[0]>>4 == 4 {
		dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(packet[16:20])), 0)
	} else if len(packet) >= 40 {
		dst, domain = netip.AddrPortFrom(netip.AddrFrom16([16]byte(packet[24:40])), 0), unix.AF_INET6
	}
	fd, err := ns.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_RAW) // implies that the packet includes the header
	if err != nil {
		return fmt.Errorf("send raw packet: %w", err)
	}
	if err := errors.Join(unix.Sendto(fd, packet, 0, netns.Sockaddr(dst)), unix.Close(fd)); err != nil {
		return fmt.Errorf("%s: send raw packet to %s: %w", ns.Name(), dst.Addr(), err)
	}
	return nil
}

// Ping sends one ICMP echo request from a namespace and does not wait for a reply. It returns the id of the echo, which
// is unique in this process.
func Ping(ns *netns.NS, to netip.Addr) (id uint16, err error) {
	proto := unix.IPPROTO_ICMP
	if to.Is6() {
		proto = unix.IPPROTO_ICMPV6
	}
	fd, err := ns.Socket(netns.Domain(to), unix.SOCK_RAW, proto)
	if err != nil {
		return 0, fmt.Errorf("ping: %w", err)
	}
	id = uint16(echoID.Add(1))
	message := echoRequest(to, id, 1)
	if err := errors.Join(unix.Sendto(fd, message, 0, netns.Sockaddr(netip.AddrPortFrom(to, 0))),
		unix.Close(fd)); err != nil {
		return 0, fmt.Errorf("%s: ping %s: %w", ns.Name(), to, err)
	}
	return id, nil
}
