// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// ICMP types, codes and where they are defined: RFC 792, RFC 1812 5.2.7.1 (v4); RFC 4443, RFC 4890 (v6).
const (
	icmp4EchoReply, icmp4Unreachable, icmp4EchoRequest, icmp4TimeExceeded, icmp4BadParameter = 0, 3, 8, 11, 12
	icmp6Unreachable, icmp6TimeExceeded, icmp6BadParameter, icmp6EchoRequest, icmp6EchoReply = 1, 3, 4, 128, 129

	icmp4PortUnreachable, icmp4FragmentationNeeded = 3, 4
	icmp6PortUnreachable                           = 4
)

// While the kernel is busy with a socket (in connect, say), it drops an ICMP error for it (LockDroppedIcmps in
// /proc/net/netstat), and the client learns of it only a second later. A raw socket gets every ICMP message.

// echoID gives the echoes of each probe an id of their own.
var echoID atomic.Uint32

// openICMP opens a raw socket that receives the errors and echo replies of the namespace of the thread.
func openICMP(domain int) (int, error) {
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, icmpOf(domain))
	if err != nil {
		return -1, fmt.Errorf("raw ICMP socket: %w", err)
	}
	if err := filterICMP(fd, domain); err != nil {
		return -1, errors.Join(fmt.Errorf("filter of the raw ICMP socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// icmpOf returns the ICMP of an address family.
func icmpOf(domain int) int {
	if domain == unix.AF_INET6 {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

func filterICMP(fd, domain int) error {
	if domain == unix.AF_INET6 {
		var blocked unix.ICMPv6Filter // a bit for every type to block
		for i := range blocked.Data {
			blocked.Data[i] = ^uint32(0)
		}
		for _, t := range []int{icmp6Unreachable, icmp6TimeExceeded, icmp6BadParameter, icmp6EchoReply} {
			blocked.Data[t/32] &^= 1 << (t % 32)
		}
		return unix.SetsockoptICMPv6Filter(fd, unix.SOL_ICMPV6, unix.ICMPV6_FILTER, &blocked)
	}
	const icmpFilter = 1 // ICMP_FILTER of linux/icmp.h: 32 bits, used in the same way
	blocked := ^uint32(1<<icmp4EchoReply | 1<<icmp4Unreachable | 1<<icmp4TimeExceeded | 1<<icmp4BadParameter)
	return unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, int(int32(blocked)))
}

// icmpMessage is a received ICMP message: an echo reply, or an error with the packet it quotes.
type icmpMessage struct {
	from      netip.Addr
	typ, code uint8
	v6        bool
	id, seq   uint16 // of an echo reply

	proto    uint8 // of the quoted packet
	src, dst netip.AddrPort
}

// receiveICMP reads one message from a raw socket. It returns false if there is none.
func receiveICMP(fd int) (m icmpMessage, ok bool) {
	var buf [1500]byte
	for {
		n, sa, err := unix.Recvfrom(fd, buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return m, false
		}
		if m, ok = parseICMP(buf[:n], netns.AddrPort(sa).Addr()); ok {
			return m, true
		}
	}
}

func parseICMP(b []byte, from netip.Addr) (m icmpMessage, ok bool) {
	m = icmpMessage{from: from, v6: from.Is6()}
	if !m.v6 {
		if len(b) < 20 || len(b) < headerLen4(b) {
			return m, false
		}
		b = b[headerLen4(b):]
	}
	if len(b) < 8 {
		return m, false
	}
	m.typ, m.code = b[0], b[1]
	if m.isEchoReply() {
		m.id, m.seq = binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
		return m, true
	}
	m.proto, m.src, m.dst, ok = parseQuoted(b[8:], m.v6)
	return m, ok
}

func headerLen4(b []byte) int { return int(b[0]&0xf) * 4 }

// parseQuoted decodes the beginning of an IP packet: addresses, and the ports, which come first in TCP and UDP alike.
func parseQuoted(b []byte, v6 bool) (proto uint8, src, dst netip.AddrPort, ok bool) {
	var from, to netip.Addr
	if v6 {
		if len(b) < 40 {
			return
		}
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		proto, b = skipExtensions(b[6], b[40:])
	} else {
		if len(b) < 20 || len(b) < headerLen4(b) {
			return
		}
		proto = b[9]
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[headerLen4(b):]
	}
	if len(b) < 4 {
		return
	}
	src = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b))
	dst = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
	return proto, src, dst, true
}

// skipExtensions finds the transport header behind IPv6 extension headers (RFC 8200 4.).
func skipExtensions(next uint8, b []byte) (uint8, []byte) {
	for {
		size := 0
		switch {
		case len(b) < 8:
			return next, nil
		case next == unix.IPPROTO_FRAGMENT:
			size = 8
		case next == unix.IPPROTO_HOPOPTS, next == unix.IPPROTO_ROUTING, next == unix.IPPROTO_DSTOPTS:
			size = 8 + 8*int(b[1])
		default:
			return next, b
		}
		if size > len(b) {
			return next, nil
		}
		next, b = b[0], b[size:]
	}
}

func (m icmpMessage) isEchoReply() bool {
	if m.v6 {
		return m.typ == icmp6EchoReply
	}
	return m.typ == icmp4EchoReply
}

// outcome returns what the error means to the sender of the quoted packet. It is zero if the exchange goes on.
func (m icmpMessage) outcome() Outcome {
	switch {
	case m.v6 && m.typ == icmp6Unreachable && m.code == icmp6PortUnreachable:
		return Refused
	case m.v6:
		return Unreachable
	case m.typ == icmp4Unreachable && m.code == icmp4PortUnreachable:
		return Refused
	case m.typ == icmp4Unreachable && m.code == icmp4FragmentationNeeded:
		return 0 // the kernel retransmits in smaller segments
	}
	return Unreachable
}

func (m icmpMessage) String() string { return fmt.Sprintf("ICMP %s from %s", m.what(), m.from) }

func (m icmpMessage) what() string {
	names, typ := icmp4Unreachables[:], icmp4Unreachable
	exceeded, parameter := icmp4TimeExceeded, icmp4BadParameter
	if m.v6 {
		names, typ = icmp6Unreachables[:], icmp6Unreachable
		exceeded, parameter = icmp6TimeExceeded, icmp6BadParameter
	}
	switch {
	case int(m.typ) == typ && int(m.code) < len(names):
		return names[m.code]
	case int(m.typ) == exceeded:
		return "time exceeded"
	case int(m.typ) == parameter:
		return "parameter problem"
	}
	return fmt.Sprintf("type %d code %d", m.typ, m.code)
}

var icmp4Unreachables = [...]string{
	"net unreachable", "host unreachable", "protocol unreachable", "port unreachable", "fragmentation needed",
	"source route failed", "net unknown", "host unknown", "host isolated", "net prohibited", "host prohibited",
	"net unreachable for this service", "host unreachable for this service", "admin prohibited",
	"precedence violation", "precedence cutoff",
}

var icmp6Unreachables = [...]string{
	"no route", "admin prohibited", "beyond scope", "address unreachable", "port unreachable", "source address policy",
	"reject route",
}
