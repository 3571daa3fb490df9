// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/observe"
)

// key tells one packet from others, wherever its addresses are translated.
type key struct {
	proto string
	// seq is the sequence number of a TCP segment with SYN. NAT keeps it.
	seq uint32
	// payload is the beginning of that of a datagram.
	payload []byte
	// reply means the segment that answers.
	reply bool
}

// sample is how many bytes of a payload are compared: what the kernel shows of a datagram behind its header.
const sample = 12

func keyOf(p *observe.Packet) key {
	return key{proto: p.Proto, seq: p.Seq, payload: p.Payload[:min(len(p.Payload), sample)]}
}

// keyOfHeader is keyOf for a packet of which the kernel shows the headers.
func keyOfHeader(p *observe.Packet, transport []byte) key {
	k := key{proto: p.Proto, seq: p.Seq}
	if p.Proto != "tcp" {
		k.payload = transport[min(len(transport), datagramHeader):min(len(transport), datagramHeader+sample)]
	}
	return k
}

// datagramHeader is the size of the headers of UDP and of ICMP echo.
const datagramHeader = 8

// is reports whether a packet at a device is the one.
func (k key) is(p *observe.Packet) bool {
	if p.Proto != k.proto {
		return false
	}
	if k.proto == "tcp" {
		if k.reply {
			return p.Ack == k.seq+1 && (p.Flags == "SYN,ACK" || strings.Contains(p.Flags, "RST"))
		}
		return p.Seq == k.seq && p.Flags == "SYN"
	}
	return !k.reply && len(k.payload) > 0 && bytes.HasPrefix(p.Payload, k.payload)
}

// header reports whether a packet whose headers the kernel shows is the one.
func (k key) header(network, transport []byte) bool {
	raw := append(bytes.Clone(network), transport...)
	if len(raw) == 0 {
		return false
	}
	p, err := observe.DecodeIP(raw)
	if err != nil {
		return false
	}
	if p.Proto != k.proto || len(transport) < datagramHeader {
		return false
	}
	if k.proto == "tcp" { // the options may be missing, so that p has no flags
		return k.segment(transport)
	}
	payload := transport[datagramHeader:min(len(transport), datagramHeader+sample)]
	return !k.reply && len(payload) > 0 && bytes.HasPrefix(k.payload, payload)
}

// segment reports whether a TCP header is that of the packet (RFC 9293 3.1).
func (k key) segment(header []byte) bool {
	if len(header) < 14 {
		return false
	}
	const syn, rst, ack = 0x02, 0x04, 0x10
	flags := header[13] & (syn | rst | ack)
	if k.reply {
		return binary.BigEndian.Uint32(header[8:]) == k.seq+1 && (flags == syn|ack || flags&rst != 0)
	}
	return binary.BigEndian.Uint32(header[4:]) == k.seq && flags == syn
}

// The bits of the state and of the status of a connection (NF_CT_STATE_BIT in linux/netfilter/nf_conntrack_common.h,
// enum ip_conntrack_status).
var states = []struct {
	bit  uint32
	name string
}{{1, "INVALID"}, {1 << 3, "NEW"}, {1 << 1, "ESTABLISHED"}, {1 << 2, "RELATED"}, {1 << 6, "UNTRACKED"}}

const sourceNAT, destinationNAT = 1 << 4, 1 << 5

// stateOf names a state.
func stateOf(state, status uint32) string {
	var names []string
	for _, s := range states {
		if state&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	if status&sourceNAT != 0 {
		names = append(names, "SNAT")
	}
	if status&destinationNAT != 0 {
		names = append(names, "DNAT")
	}
	return strings.Join(names, ",")
}

// families are the names of families in messages.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_BRIDGE: "bridge",
	unix.NFPROTO_NETDEV: "netdev",
}
