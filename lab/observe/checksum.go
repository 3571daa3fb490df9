// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// VerifyChecksums checks the IPv4 header and the TCP, UDP or ICMP checksum of the packet and of those inside it. It
// skips transport checksums of fragments, and the outer one of a frame with ChecksumPending.
func (p *Packet) VerifyChecksums() error {
	v4 := p.Src.Addr().Is4()
	if v4 && sum(p.Raw[:4*(p.Raw[0]&0xf)], 0) != 0xffff {
		return fmt.Errorf("%s: wrong IPv4 header checksum", p)
	}
	if p.Inner != nil {
		if err := p.Inner.VerifyChecksums(); err != nil {
			return err
		}
	}
	if p.Fragment {
		return nil
	}
	var pseudo uint32
	switch p.proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_ICMPV6:
		pseudo = p.pseudoHeader()
	case unix.IPPROTO_UDP:
		if v4 && len(p.body) >= 8 && binary.BigEndian.Uint16(p.body[6:]) == 0 {
			return nil // the sender used no checksum (RFC 768)
		}
		pseudo = p.pseudoHeader()
	case unix.IPPROTO_ICMP:
	default:
		return nil
	}
	if got := sum(p.body, pseudo); got != 0xffff {
		return fmt.Errorf("%s: wrong %s checksum (it sums up to %#04x)", p, protoName(p.proto), got)
	}
	return nil
}

// pseudoHeader returns the sum of the IP header fields that TCP, UDP and ICMPv6 include (RFC 9293 3.1, RFC 8200 8.1).
func (p *Packet) pseudoHeader() uint32 {
	addresses := append(p.Src.Addr().AsSlice(), p.Dst.Addr().AsSlice()...)
	return uint32(sum(addresses, uint32(p.proto))) + uint32(len(p.body))
}

// sum returns the one's complement sum of the 16-bit words of b, added to start (RFC 1071).
func sum(b []byte, start uint32) uint16 {
	total := uint64(start)
	for ; len(b) > 1; b = b[2:] {
		total += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		total += uint64(b[0]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
