// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
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

// Packet returns the segment as an IP packet with correct checksums, so that conntrack does not call it invalid.
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
	out, err := serialize(ip, t, gopacket.Payload(payload))
	if err != nil {
		return nil, fmt.Errorf("packet %s > %s: %w", src, dst, err)
	}
	return out, nil
}

// serialize encodes layers with correct lengths and checksums.
func serialize(parts ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	err := gopacket.SerializeLayers(buf, options, parts...)
	return buf.Bytes(), err
}

// SendRaw sends an IP packet with any source address through routing and netfilter's output hooks.
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
	// IPPROTO_RAW implies that the packet includes the header.
	if err := sendOnce(ns, domain, unix.SOCK_RAW, unix.IPPROTO_RAW, packet, netns.Sockaddr(dst)); err != nil {
		return fmt.Errorf("%s: send raw packet to %s: %w", ns.Name(), dst.Addr(), err)
	}
	return nil
}

// Ping sends one ICMP echo request and does not wait for a reply. The id is unique in this process.
func Ping(ns *netns.NS, to netip.Addr) (id uint16, err error) {
	id = uint16(echoID.Add(1))
	domain, at := netns.Domain(to), netns.Sockaddr(netip.AddrPortFrom(to, 0))
	if err := sendOnce(ns, domain, unix.SOCK_RAW, icmpOf(domain), echoRequest(to, id, 1), at); err != nil {
		return 0, fmt.Errorf("%s: ping %s: %w", ns.Name(), to, err)
	}
	return id, nil
}

// SendFrame sends an IP packet out of a device to a hardware address, past routing and all netfilter hooks.
func SendFrame(ns *netns.NS, device int, to net.HardwareAddr, packet []byte) error {
	proto := binary.BigEndian.AppendUint16(nil, etherType(packet))
	at := &unix.SockaddrLinklayer{Ifindex: device, Protocol: binary.NativeEndian.Uint16(proto)}
	at.Halen = uint8(copy(at.Addr[:], to))
	if err := sendOnce(ns, unix.AF_PACKET, unix.SOCK_DGRAM, 0, packet, at); err != nil { // 0: it receives nothing
		return fmt.Errorf("%s: send frame to %s: %w", ns.Name(), to, err)
	}
	return nil
}

// etherType returns the EtherType of an IP packet.
func etherType(packet []byte) uint16 {
	if len(packet) > 0 && packet[0]>>4 == 6 {
		return unix.ETH_P_IPV6
	}
	return unix.ETH_P_IP
}

// VXLAN returns the UDP payload that carries an IP packet through a VXLAN (RFC 7348) to a host's tunnel device.
func VXLAN(network uint32, to net.HardwareAddr, packet []byte) []byte {
	const valid = 0x08 // the flag that the network number is valid
	out := binary.BigEndian.AppendUint32([]byte{valid, 0, 0, 0}, network<<8)
	out = append(append(out, to...), 0x02, 0, 0, 0, 0, 1) // from an arbitrary local address
	return append(binary.BigEndian.AppendUint16(out, etherType(packet)), packet...)
}

// IPIP returns an IPv4 packet that carries another one (RFC 2003).
func IPIP(src, dst netip.Addr, packet []byte) ([]byte, error) {
	return serialize(
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolIPv4, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()},
		gopacket.Payload(packet))
}

// Fragments cuts an IP packet without options into fragments with size bytes of payload, a multiple of 8 (RFC 791 3.2).
func Fragments(packet []byte, size int) ([][]byte, error) {
	header := 40
	if len(packet) > 0 && packet[0]>>4 == 4 {
		header = 20
	}
	if len(packet) <= header || size <= 0 || size%8 != 0 {
		return nil, fmt.Errorf("fragments of %d bytes of a packet of %d: want a multiple of 8, and a payload", size,
			len(packet))
	}
	id := rand.Uint32() | 1 // the kernel replaces a 0 in IPv4
	payload := packet[header:]
	var out [][]byte
	for at := 0; at < len(payload); at += size {
		end := min(at+size, len(payload))
		piece := fragment4
		if header == 40 {
			piece = fragment6
		}
		out = append(out, piece(packet[:header], payload[at:end], id, at, end < len(payload)))
	}
	return out, nil
}

func fragment4(header, payload []byte, id uint32, at int, more bool) []byte {
	b := append(append([]byte(nil), header...), payload...)
	field := uint16(at / 8)
	if more {
		field |= 0x2000 // MF
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[4:], uint16(id))
	binary.BigEndian.PutUint16(b[6:], field)
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], checksum(b[:20]))
	return b
}

func fragment6(header, payload []byte, id uint32, at int, more bool) []byte {
	const extension = 8
	b := append(append([]byte(nil), header...), make([]byte, extension)...)
	b[40] = b[6] // the protocol of the payload
	b[6] = unix.IPPROTO_FRAGMENT
	field := uint16(at) // in units of 8 bytes, above three bits of flags
	if more {
		field |= 1
	}
	binary.BigEndian.PutUint16(b[4:], uint16(extension+len(payload)))
	binary.BigEndian.PutUint16(b[42:], field)
	binary.BigEndian.PutUint32(b[44:], id)
	return append(b, payload...)
}
