// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
)

// Flow is an entry of a conntrack table.
type Flow struct {
	// Proto is "tcp", "udp", "sctp", "icmp", "icmpv6", or a protocol number.
	Proto string
	// Orig is the first packet as it came in, Reply the expected reply as it comes in: its reverse, if not translated.
	Orig, Reply Tuple
	// Mark is the connection mark (not the packet's).
	Mark uint32
	// Zone is the conntrack zone, usually 0.
	Zone uint16
	// Status holds the bits of the entry (the kernel's enum ip_conntrack_status); see the methods.
	Status Status
	// TCPState is the state of a TCP flow as conntrack prints it ("ESTABLISHED"). It is empty for other protocols.
	TCPState string
	// Timeout is how long the entry stays without further packets.
	Timeout time.Duration
}

// Tuple is one direction of a flow. An ICMP echo has its id as source port and type<<8 | code as destination port.
type Tuple struct{ Src, Dst netip.AddrPort }

func (t Tuple) String() string { return fmt.Sprintf("%s -> %s", t.Src, t.Dst) }

// Status is the state of an entry.
type Status = conntrack.Status

// SNAT reports whether the source of the flow is translated.
func (f Flow) SNAT() bool { return f.Status.SrcNAT() }

// DNAT reports whether the destination of the flow is translated.
func (f Flow) DNAT() bool { return f.Status.DstNAT() }

// Assured reports whether the kernel has seen enough traffic to keep the entry when the table is full.
func (f Flow) Assured() bool { return f.Status.Assured() }

// Replied reports whether the kernel has seen a packet in the reply direction.
func (f Flow) Replied() bool { return f.Status.SeenReply() }

// String returns "tcp 10.1.1.1:4 -> 10.96.0.1:80 | 10.244.1.2:8080 -> 10.1.1.1:4 ESTABLISHED", for example.
func (f Flow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s | %s", f.Proto, f.Orig, f.Reply)
	if f.TCPState != "" {
		b.WriteString(" " + f.TCPState)
	}
	if !f.Replied() {
		b.WriteString(" UNREPLIED")
	}
	if f.Mark != 0 {
		fmt.Fprintf(&b, " mark=%#x", f.Mark)
	}
	if f.Zone != 0 {
		fmt.Fprintf(&b, " zone=%d", f.Zone)
	}
	return b.String()
}

var protoNames = map[uint8]string{
	unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp",
	unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmpv6",
}

func protoName(proto uint8) string {
	if name, ok := protoNames[proto]; ok {
		return name
	}
	return fmt.Sprint(proto)
}

// tcpStates is enum tcp_conntrack (include/uapi/linux/netfilter/nf_conntrack_tcp.h).
var tcpStates = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE",
	"SYN_SENT2",
}

func flowFrom(f *conntrack.Flow) Flow {
	out := Flow{
		Proto: protoName(f.TupleOrig.Proto.Protocol),
		Orig:  tupleFrom(f.TupleOrig), Reply: tupleFrom(f.TupleReply),
		Mark: f.Mark, Zone: f.Zone, Status: f.Status,
		Timeout: time.Duration(f.Timeout) * time.Second,
	}
	if tcp := f.ProtoInfo.TCP; tcp != nil && int(tcp.State) < len(tcpStates) {
		out.TCPState = tcpStates[tcp.State]
	}
	return out
}

func tupleFrom(t conntrack.Tuple) Tuple {
	from, to := t.Proto.SourcePort, t.Proto.DestinationPort
	if t.Proto.ICMPv4 || t.Proto.ICMPv6 {
		from, to = t.Proto.ICMPID, uint16(t.Proto.ICMPType)<<8|uint16(t.Proto.ICMPCode)
	}
	return Tuple{netip.AddrPortFrom(t.IP.SourceAddress, from), netip.AddrPortFrom(t.IP.DestinationAddress, to)}
}

// tupleTo reverses tupleFrom.
func (f Flow) tupleTo(t Tuple) (conntrack.Tuple, error) {
	out := conntrack.Tuple{Zone: f.Zone}
	out.IP.SourceAddress, out.IP.DestinationAddress = t.Src.Addr(), t.Dst.Addr()
	out.Proto.ICMPv4, out.Proto.ICMPv6 = f.Proto == "icmp", f.Proto == "icmpv6"
	if out.Proto.ICMPv4 || out.Proto.ICMPv6 {
		out.Proto.ICMPID = t.Src.Port()
		out.Proto.ICMPType, out.Proto.ICMPCode = uint8(t.Dst.Port()>>8), uint8(t.Dst.Port())
	} else {
		out.Proto.SourcePort, out.Proto.DestinationPort = t.Src.Port(), t.Dst.Port()
	}
	for number, name := range protoNames {
		if name == f.Proto {
			out.Proto.Protocol = number
			return out, nil
		}
	}
	_, err := fmt.Sscan(f.Proto, &out.Proto.Protocol)
	return out, err
}
