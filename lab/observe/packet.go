// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Packet is a decoded IP packet.
type Packet struct {
	// Proto is "tcp", "udp", "icmp", "icmpv6", "ipip" or "vxlan" (see Inner), or the number of another protocol.
	Proto string
	// Src and Dst have port 0 if the protocol has no ports, and in all fragments but the first.
	Src, Dst netip.AddrPort
	// TTL is the hop limit.
	TTL uint8
	// Flags are the flags of a TCP segment, joined by commas as in "SYN,ACK"; Seq and Ack are its numbers.
	Flags    string
	Seq, Ack uint32
	// ICMPType and ICMPCode are those of an ICMP message.
	ICMPType, ICMPCode uint8
	// Quoted is the beginning of the packet that an ICMP error quotes. It is nil for other packets.
	Quoted *Packet
	// Inner is the packet that a tunnel packet carries. It is nil for other packets.
	Inner *Packet
	// Fragment reports whether this is a fragment. Payload is the payload of the transport protocol.
	Fragment bool
	Payload  []byte
	// Raw is the packet from its IP header on.
	Raw []byte

	proto uint8  // of body
	body  []byte // the bytes after the IP headers; nil in all fragments but the first
}

// ErrNotIP is the error for a frame that holds no IP packet, such as ARP.
var ErrNotIP = errors.New("not an IP packet")

// Innermost returns the packet inside all tunnels, or the packet itself.
func (p *Packet) Innermost() *Packet {
	for p.Inner != nil {
		p = p.Inner
	}
	return p
}

// String returns "tcp 10.1.1.1:4 > 10.96.0.1:80 SYN ttl 63", for example.
func (p *Packet) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s > %s", p.Proto, p.end(p.Src), p.end(p.Dst))
	if p.Flags != "" {
		b.WriteString(" " + p.Flags)
	}
	if strings.HasPrefix(p.Proto, "icmp") {
		fmt.Fprintf(&b, " type %d code %d", p.ICMPType, p.ICMPCode)
	}
	if p.Fragment {
		b.WriteString(" fragment")
	}
	fmt.Fprintf(&b, " ttl %d", p.TTL)
	if p.Quoted != nil {
		fmt.Fprintf(&b, " quotes [%s]", p.Quoted)
	}
	if p.Inner != nil {
		fmt.Fprintf(&b, " carries [%s]", p.Inner)
	}
	return b.String()
}

func (p *Packet) end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// Decode decodes the packet in a frame. The error is ErrNotIP for other frames.
func Decode(f Frame) (*Packet, error) {
	if !f.Ethernet {
		return DecodeIP(f.Data)
	}
	data, err := stripEthernet(f.Data)
	if err != nil {
		return nil, err
	}
	return DecodeIP(data)
}

func stripEthernet(b []byte) ([]byte, error) {
	if len(b) < 14 {
		return nil, ErrNotIP
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP, unix.ETH_P_IPV6:
		return b[14:], nil
	}
	return nil, ErrNotIP
}

// DecodeIP decodes a packet that begins with its IP header. The end may be missing, as in the quotes of ICMP.
func DecodeIP(b []byte) (*Packet, error) {
	if len(b) == 0 {
		return nil, ErrNotIP
	}
	p := &Packet{Raw: b}
	switch b[0] >> 4 {
	case 4:
		var ip layers.IPv4
		if err := ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotIP, err)
		}
		p.setAddresses(ip.SrcIP, ip.DstIP)
		p.trim(int(ip.Length))
		p.TTL, p.proto = ip.TTL, uint8(ip.Protocol)
		p.Fragment = ip.FragOffset > 0 || ip.Flags&layers.IPv4MoreFragments != 0
		if ip.FragOffset == 0 {
			p.body = p.Raw[4*ip.IHL:]
		}
	case 6:
		var ip layers.IPv6
		if err := ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotIP, err)
		}
		p.setAddresses(ip.SrcIP, ip.DstIP)
		p.trim(40 + int(ip.Length))
		p.TTL = ip.HopLimit
		p.proto, p.body = p.skipExtensions(b[6], p.Raw[40:])
	default:
		return nil, ErrNotIP
	}
	p.decodeTransport(p.proto, p.body)
	return p, nil
}

// trim cuts off the padding of a short frame.
func (p *Packet) trim(length int) {
	if length < len(p.Raw) && length >= 20 {
		p.Raw = p.Raw[:length]
	}
}

func (p *Packet) setAddresses(src, dst []byte) {
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	p.Src, p.Dst = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
}

// skipExtensions finds the transport header behind IPv6 extension headers (RFC 8200 4.).
func (p *Packet) skipExtensions(next uint8, b []byte) (uint8, []byte) {
	for len(b) >= 8 {
		size := 0
		switch next {
		case unix.IPPROTO_FRAGMENT:
			size, p.Fragment = 8, true
			if binary.BigEndian.Uint16(b[2:])>>3 > 0 {
				return b[0], nil
			}
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			size = 8 + 8*int(b[1])
		default:
			return next, b
		}
		next, b = b[0], b[min(size, len(b)):]
	}
	return next, b
}

// The UDP ports of VXLAN: the assigned one and Linux's older default, which flannel uses.
var vxlanPorts = []uint16{4789, 8472}

// decodeTransport decodes the transport header. If the header is truncated, the remaining fields stay zero.
func (p *Packet) decodeTransport(proto uint8, b []byte) {
	p.Proto = protoName(proto)
	switch proto {
	case unix.IPPROTO_IPIP, unix.IPPROTO_IPV6:
		p.Proto = "ipip"
		p.Inner, _ = DecodeIP(b)
		return
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		if len(b) < 4 {
			return
		}
		p.Src = netip.AddrPortFrom(p.Src.Addr(), binary.BigEndian.Uint16(b))
		p.Dst = netip.AddrPortFrom(p.Dst.Addr(), binary.BigEndian.Uint16(b[2:]))
	}
	if len(b) < 8 {
		return
	}
	switch proto {
	case unix.IPPROTO_TCP:
		p.decodeTCP(b)
	case unix.IPPROTO_UDP:
		p.decodeUDP(b)
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		p.ICMPType, p.ICMPCode, p.Payload = b[0], b[1], b[8:]
		if isICMPError(proto, b[0]) {
			p.Quoted, _ = DecodeIP(b[8:])
		}
	}
}

func isICMPError(proto, typ uint8) bool {
	if proto == unix.IPPROTO_ICMPV6 {
		return typ < 128 // RFC 4443 2.1
	}
	return slices.Contains([]uint8{3, 4, 5, 11, 12}, typ) // RFC 792
}

func (p *Packet) decodeTCP(b []byte) {
	p.Seq = binary.BigEndian.Uint32(b[4:]) // even ICMP quotes include these bytes
	var tcp layers.TCP
	if tcp.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil {
		return
	}
	p.Ack, p.Payload = tcp.Ack, tcp.Payload
	var names []string
	for _, f := range []struct {
		set  bool
		name string
	}{
		{tcp.SYN, "SYN"}, {tcp.FIN, "FIN"}, {tcp.RST, "RST"}, {tcp.PSH, "PSH"},
		{tcp.ACK, "ACK"}, {tcp.URG, "URG"}, {tcp.ECE, "ECE"}, {tcp.CWR, "CWR"},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	p.Flags = strings.Join(names, ",")
}

func (p *Packet) decodeUDP(b []byte) {
	p.Payload = b[8:]
	if !slices.Contains(vxlanPorts, p.Dst.Port()) || len(p.Payload) < 8 {
		return
	}
	if ip, err := stripEthernet(p.Payload[8:]); err == nil { // 8 bytes of VXLAN header (RFC 7348 5.)
		if inner, err := DecodeIP(ip); err == nil {
			p.Proto, p.Inner = "vxlan", inner
		}
	}
}
