// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// datagrams is a UDP socket of a server.
type datagrams struct {
	server *Server
	fd     int
	port   uint16
	oob    [128]byte
}

// askForDestination makes datagrams come with their destination address, from which the answer has to come.
func askForDestination(a netip.Addr) option {
	if a.Is4() {
		return option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1, "IP_PKTINFO"}
	}
	return option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, "IPV6_RECVPKTINFO"}
}

func (d *datagrams) ready() {
	for range 64 { // one busy socket must not starve the others
		if !d.serveOne() {
			return
		}
	}
}

func (d *datagrams) serveOne() bool {
	buf := servers.scratch[:]
	n, oobn, _, from, err := unix.Recvmsg(d.fd, buf, d.oob[:], 0)
	if err != nil {
		return false
	}
	local := netip.AddrPortFrom(destination(d.oob[:oobn]), d.port)
	line, rest := cutLine(buf[:n])
	r, err := parseRequest(line)
	if err != nil || r.payload > len(rest) {
		return true // not a request, so there is no answer
	}
	g := d.server.greet("udp", netns.AddrPort(from), local, r, crc32.Checksum(rest[:r.payload], castagnoli()))
	answer := append(g.line(), makePayload(r.nonce, r.payload)...)
	// An answer that the kernel rejects is lost like one dropped on the way; the client will report it.
	_, _ = unix.SendmsgN(d.fd, answer, sourceIs(local.Addr()), from, 0)
	servers.answered(g)
	return true
}

// destination returns the destination address of a datagram from its control messages (ip(7) IP_PKTINFO, ipv6(7)).
func destination(oob []byte) netip.Addr {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(data[8:12])) // ipi_addr: the address in the packet's header
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		oob = rest
	}
	return netip.Addr{}
}

// sourceIs returns the control message that makes a datagram leave from an address.
func sourceIs(a netip.Addr) []byte {
	if a.Is4() {
		info := make([]byte, unix.SizeofInet4Pktinfo)
		copy(info[4:8], a.AsSlice()) // ipi_spec_dst: the local address to send from
		return controlMessage(unix.IPPROTO_IP, unix.IP_PKTINFO, info)
	}
	info := make([]byte, unix.SizeofInet6Pktinfo)
	copy(info, a.AsSlice())
	return controlMessage(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, info)
}

func controlMessage(level, typ int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	binary.NativeEndian.PutUint64(b[0:], uint64(unix.CmsgLen(len(data))))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(typ))
	copy(b[unix.CmsgLen(0):], data)
	return b
}
