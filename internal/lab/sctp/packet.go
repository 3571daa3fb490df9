// SPDX-License-Identifier: Apache-2.0

// Package sctp opens SCTP associations from raw sockets, on kernels without SCTP: conntrack and NAT know the protocol
// all the same. An association is the four packets of its handshake (RFC 9260 5.1), a DATA chunk each way, and the
// ABORT that ends it; the server's answer travels in the cookie.
//
// Where the kernel does speak SCTP in a namespace, it would abort what these sockets open; Available tells.
package sctp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Available says whether associations can be opened here: nil, or what is in the way.
func Available() error {
	_, err := os.Stat("/proc/net/sctp")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("find out whether the kernel speaks SCTP: %w", err)
	}
	return errors.New("the kernel's own SCTP is loaded, and aborts associations that raw sockets open: rmmod sctp, " +
		"while nobody uses it")
}

// Parameters of INIT and INIT ACK (RFC 9260 3.3.2, 3.3.3).
const (
	paramIPv4   = 5
	paramIPv6   = 6
	paramCookie = 7
)

// message is a packet with one chunk.
type message struct {
	src, dst uint16
	tag      uint32 // verification tag, of the receiver
	kind     layers.SCTPChunkType

	initTag uint32       // INIT, INIT ACK: the sender's tag
	listed  []netip.Addr // INIT: further addresses of the sender
	cookie  []byte       // INIT ACK, COOKIE ECHO
	data    []byte       // DATA
}

// bytes returns the packet from its SCTP header on.
func (m message) bytes() ([]byte, error) {
	head := &layers.SCTP{SrcPort: layers.SCTPPort(m.src), DstPort: layers.SCTPPort(m.dst), VerificationTag: m.tag}
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, options, head, m.chunk()); err != nil {
		return nil, fmt.Errorf("make %s: %w", m.kind, err)
	}
	return buf.Bytes(), nil
}

func (m message) chunk() gopacket.SerializableLayer {
	chunk := layers.SCTPChunk{Type: m.kind}
	switch m.kind {
	case layers.SCTPChunkTypeInit, layers.SCTPChunkTypeInitAck:
		init := &layers.SCTPInit{
			SCTPChunk: chunk, InitiateTag: m.initTag, AdvertisedReceiverWindowCredit: 1 << 16,
			OutboundStreams: 1, InboundStreams: 1, InitialTSN: 1,
		}
		for _, a := range m.listed {
			kind := uint16(paramIPv4)
			if a.Is6() {
				kind = paramIPv6
			}
			init.Parameters = append(init.Parameters, layers.SCTPInitParameter{Type: kind, Value: a.AsSlice()})
		}
		if m.cookie != nil {
			init.Parameters = append(init.Parameters, layers.SCTPInitParameter{Type: paramCookie, Value: m.cookie})
		}
		return init
	case layers.SCTPChunkTypeCookieEcho:
		return &layers.SCTPCookieEcho{SCTPChunk: chunk, Cookie: m.cookie}
	case layers.SCTPChunkTypeData:
		chunk.Length = uint16(16 + len(m.data)) // gopacket computes it for other chunks alone
		return &layers.SCTPData{SCTPChunk: chunk, BeginFragment: true, EndFragment: true, TSN: 1, Payload: m.data}
	default: // COOKIE ACK and ABORT have nothing to say
		return &layers.SCTPEmptyLayer{SCTPChunk: chunk}
	}
}

// parse reads a packet from its SCTP header on, and its first chunk. The checksum is for conntrack to judge.
func parse(b []byte) (message, error) {
	p := gopacket.NewPacket(b, layers.LayerTypeSCTP, gopacket.NoCopy)
	head, ok := p.Layer(layers.LayerTypeSCTP).(*layers.SCTP)
	if !ok {
		return message{}, errors.New("no SCTP header")
	}
	m := message{src: uint16(head.SrcPort), dst: uint16(head.DstPort), tag: head.VerificationTag}
	for _, l := range p.Layers() {
		switch chunk := l.(type) {
		case *layers.SCTPInit:
			m.kind, m.initTag = chunk.Type, chunk.InitiateTag
			m.take(chunk.Parameters)
			return m, nil
		case *layers.SCTPCookieEcho:
			m.kind, m.cookie = chunk.Type, chunk.Cookie
			return m, nil
		case *layers.SCTPData:
			m.kind, m.data = chunk.Type, chunk.Payload
			return m, nil
		case *layers.SCTPEmptyLayer:
			m.kind = chunk.Type
			return m, nil
		case *layers.SCTPError:
			m.kind = chunk.Type
			return m, nil
		}
	}
	return m, errors.New("no chunk of an association")
}

func (m *message) take(parameters []layers.SCTPInitParameter) {
	for _, p := range parameters {
		switch p.Type {
		case paramIPv4, paramIPv6:
			if a, ok := netip.AddrFromSlice(p.Value); ok {
				m.listed = append(m.listed, a)
			}
		case paramCookie:
			m.cookie = p.Value
		}
	}
}

// payload returns what follows the IP header, which raw sockets deliver with packets of IPv4 alone (raw(7)).
func payload(b []byte, domain int) []byte {
	if domain == unix.AF_INET6 || len(b) == 0 {
		return b
	}
	head := int(b[0]&0xf) * 4
	if head > len(b) {
		return nil
	}
	return b[head:]
}

// socket is a raw socket in the Go poller that sends and receives SCTP packets of one IP family.
type socket struct {
	file   *os.File
	raw    syscall.RawConn
	domain int
}

// open binds to an address, an unspecified one included.
func open(ns *netns.NS, at netip.Addr) (*socket, error) {
	fd, err := ns.Socket(netns.Domain(at), unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, netns.Sockaddr(netip.AddrPortFrom(at, 0))); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: bind to %s: %w", ns.Name(), at, err), unix.Close(fd))
	}
	s := &socket{file: os.NewFile(uintptr(fd), "sctp"), domain: netns.Domain(at)}
	s.raw, err = s.file.SyscallConn()
	return s, err
}

// only makes the socket receive packets to one port. Otherwise it receives a copy of every SCTP packet to its address,
// and those of many associations fill it. The filter is in classic BPF (Documentation/networking/filter.rst); it sees
// packets of IPv4 from the IP header on, those of IPv6 from the SCTP header on.
func (s *socket) only(port uint16) error {
	const destination = 2 // offset of the destination port in the SCTP header (RFC 9260 3.1)
	load := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: destination}}
	if s.domain == unix.AF_INET {
		load = []unix.SockFilter{
			{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH}, // the length of the IP header
			{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: destination},
		}
	}
	program := append(load,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K},
	)
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("receive packets to port %d alone: %w", port, err)
	}
	return nil
}

func (s *socket) close() error { return s.file.Close() }

// send sends a message; the kernel makes the IP header.
func (s *socket) send(m message, to netip.Addr) error {
	b, err := m.bytes()
	if err != nil {
		return err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, netns.Sockaddr(netip.AddrPortFrom(to, 0)))
		return failed != unix.EAGAIN
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("send %s to %s: %w", m.kind, to, err)
	}
	return nil
}

// largest is the number of bytes that a packet of an association may have. It is more than the MTU of a lab's links.
const largest = 2 << 10

// receive waits for the next message. Packets that are none are passed over.
func (s *socket) receive() (m message, from netip.Addr, err error) {
	buffer := make([]byte, largest)
	for {
		var n int
		var at unix.Sockaddr
		var failed error
		err := s.raw.Read(func(fd uintptr) bool {
			n, at, failed = unix.Recvfrom(int(fd), buffer, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return message{}, netip.Addr{}, err // closed, or out of time
		}
		if failed != nil {
			continue // an ICMP error for an earlier packet
		}
		if m, err := parse(payload(buffer[:n], s.domain)); err == nil {
			return m, netns.AddrPort(at).Addr(), nil
		}
	}
}

// until makes receive give up when the context ends.
func (s *socket) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.file.SetDeadline(time.Unix(1, 0)) }) // fails on a closed socket only
}
