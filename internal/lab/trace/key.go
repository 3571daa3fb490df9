// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/observe"
)

// role is what a packet is to the request.
type role int

const (
	asks    role = iota // its first packet
	answers             // the packet that answers that
	quotes              // an ICMP error about it
)

// key tells one packet from others, wherever its addresses are translated.
type key struct {
	role  role
	proto string // of the request
	// mark is what translation keeps: the sequence number of a TCP segment, the beginning of the payload of a datagram
	// or an echo, the tag of an SCTP association.
	mark []byte
	// ways are the tuples of an answer that has no such mark: the reverse of those that the request had.
	ways map[observe.Tuple]bool
	// inner is the beginning of the packet that an ICMP error quotes, and kind the error's type and code.
	inner []byte
	kind  [2]byte
}

// sample is how many bytes of a payload are compared: what the kernel shows of a datagram behind its header.
const sample = 12

// Sizes of headers: UDP and ICMP, and what is read of those of TCP and SCTP.
const datagramHeader, segmentHeader, chunkHeader = 8, 14, 20

// Bits of TCP (RFC 9293 3.1) and kinds of chunks of SCTP (RFC 9260 3.2).
const (
	flagFIN, flagSYN, flagRST, flagACK  = 0x01, 0x02, 0x04, 0x10
	chunkInit, chunkInitAck, chunkAbort = 1, 2, 6
)

// keyOf returns the key of a request's first packet, of which only the beginning may be known.
func keyOf(p *observe.Packet) key {
	k := key{proto: p.Proto}
	t := transport(p)
	switch {
	case p.Proto == "tcp" && len(t) >= segmentHeader:
		k.mark = t[4:8]
	case p.Proto == "sctp" && len(t) >= chunkHeader:
		k.mark = t[16:20]
	case p.Proto != "tcp" && p.Proto != "sctp" && len(t) > datagramHeader:
		k.mark = t[datagramHeader:min(len(t), datagramHeader+sample)]
	}
	return k
}

// answer returns the key of the packet that answers a request. Ways are the tuples that the request had.
func (k key) answer(ways []Tuple) key {
	k.role = answers
	if k.proto == "udp" {
		k.ways = map[observe.Tuple]bool{}
		for _, w := range ways {
			k.ways[observe.Tuple{Src: w.Dst, Dst: w.Src}] = true
		}
	}
	return k
}

// about returns the key of an ICMP error about a request.
func (k key) about(e *observe.Packet) key {
	k.role, k.kind = quotes, [2]byte{e.ICMPType, e.ICMPCode}
	k.inner = e.Quoted.Raw[:min(len(e.Quoted.Raw), identified)]
	return k
}

// identified is how many bytes of a quoted packet are compared: to the identification of IPv4 (RFC 791 3.1), or the
// flow label and length of IPv6 (RFC 8200 3.).
const identified = 6

// transport returns a packet from its transport header on.
func transport(p *observe.Packet) []byte {
	size := 40
	if len(p.Raw) > 0 && p.Raw[0]>>4 == 4 {
		size = 4 * int(p.Raw[0]&15)
		if len(p.Raw) >= 8 && binary.BigEndian.Uint16(p.Raw[6:])&0x1fff != 0 {
			return nil // a fragment, but not the first
		}
	} else if len(p.Raw) > 48 && p.Raw[6] == unix.IPPROTO_FRAGMENT {
		if binary.BigEndian.Uint16(p.Raw[42:])>>3 != 0 {
			return nil
		}
		size += 8
	}
	return p.Raw[min(size, len(p.Raw)):]
}

// is reports whether a packet is the one. Its end may be missing.
func (k key) is(p *observe.Packet) bool {
	if k.role == quotes {
		return p.Quoted != nil && [2]byte{p.ICMPType, p.ICMPCode} == k.kind && bytes.HasPrefix(p.Quoted.Raw, k.inner)
	}
	t := transport(p)
	if p.Proto != k.proto || k.role == asks && len(k.mark) == 0 {
		return false
	}
	switch k.proto {
	case "tcp":
		return k.segment(t)
	case "sctp":
		return k.chunk(t)
	case "udp":
		if k.role == answers {
			return k.ways[observe.Tuple{Src: p.Src, Dst: p.Dst}]
		}
		return len(t) > datagramHeader && begins(t[datagramHeader:], k.mark)
	}
	return len(t) > datagramHeader && (k.role == answers) == isEchoReply(p) && begins(t[datagramHeader:], k.mark)
}

// begins compares as much as both know.
func begins(b, mark []byte) bool {
	n := min(len(b), len(mark))
	return n > 0 && bytes.Equal(b[:n], mark[:n])
}

func isEchoReply(p *observe.Packet) bool { return p.ICMPType == 0 || p.ICMPType == 129 }

// quoted reports whether a packet that an ICMP error quotes is the request.
func (k key) quoted(p *observe.Packet) bool {
	t := transport(p)
	if p.Proto == "tcp" && k.proto == "tcp" && len(t) >= 8 {
		return bytes.Equal(t[4:8], k.mark) // the flags may be missing
	}
	return k.is(p)
}

// segment reports whether a TCP header is that of the packet.
func (k key) segment(t []byte) bool {
	if len(t) < segmentHeader || len(k.mark) == 0 {
		return false
	}
	flags := t[13] & (flagSYN | flagRST | flagACK)
	if k.role == answers {
		ack := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(k.mark)+1)
		return bytes.Equal(t[8:12], ack) && (flags == flagSYN|flagACK || flags&flagRST != 0)
	}
	return bytes.Equal(t[4:8], k.mark) && flags == flagSYN
}

// chunk reports whether an SCTP header and its first chunk are those of the packet. The answer carries the tag in its
// header.
func (k key) chunk(t []byte) bool {
	if len(t) < chunkHeader {
		return false
	}
	if k.role == answers {
		return bytes.Equal(t[4:8], k.mark) && slices.Contains([]byte{chunkInitAck, chunkAbort}, t[12])
	}
	return bytes.Equal(t[16:20], k.mark) && t[12] == chunkInit
}

// header reports whether a packet of which the kernel shows the beginning is the one. Of the packet that an ICMP error
// quotes it shows 12 bytes.
func (k key) header(network, transport []byte) bool {
	raw := slices.Concat(network, transport)
	if len(raw) == 0 || len(transport) < datagramHeader {
		return false
	}
	if k.role == quotes {
		return [2]byte{transport[0], transport[1]} == k.kind && bytes.HasPrefix(transport[datagramHeader:], k.inner) &&
			isICMP(network)
	}
	p, err := observe.DecodeIP(raw)
	return err == nil && k.is(p)
}

func isICMP(network []byte) bool {
	if len(network) < 20 {
		return false
	}
	return network[0]>>4 == 4 && network[9] == unix.IPPROTO_ICMP ||
		network[0]>>4 == 6 && network[6] == unix.IPPROTO_ICMPV6
}
