// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// pinger sends ICMP echo requests from a namespace and reads what comes back, each on a raw socket of its own, so that
// answers to others do not disturb it.
type pinger struct {
	ns     *netns.NS
	v4, v6 int
	id     uint16
	seq    uint16
}

// pong is the result of an echo request.
type pong struct {
	reply bool
	took  time.Duration
	// error is the type and code of the ICMP error that came instead of a reply.
	typ, code byte
}

func (p pong) String() string {
	if p.reply {
		return fmt.Sprintf("reply after %v", p.took)
	}
	return fmt.Sprintf("ICMP error type %d code %d", p.typ, p.code)
}

// pingerID tells the pingers of the process apart.
var pingerID atomic.Uint32

func newPinger(ns *netns.NS) (*pinger, error) {
	p := &pinger{ns: ns, id: uint16(pingerID.Add(1)), v4: -1, v6: -1}
	var err, err6 error
	p.v4, err = ns.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	p.v6, err6 = ns.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	// Packets are never fragmented: one too large for the device is an error.
	return p, errors.Join(err, err6,
		unix.SetsockoptInt(p.v4, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO),
		unix.SetsockoptInt(p.v6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO),
		unix.SetsockoptInt(p.v6, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
}

func (p *pinger) close() {
	for _, fd := range []int{p.v4, p.v6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// send sends one echo request of size bytes after the IP header. The size must be at least 8.
func (p *pinger) send(to netip.Addr, seq uint16, size int) error {
	b := make([]byte, size)
	b[0] = 8
	if to.Is6() {
		b[0] = 128 // the kernel works out the checksum
	}
	binary.BigEndian.PutUint16(b[4:], p.id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if to.Is4() {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
		return unix.Sendto(p.v4, b, 0, &unix.SockaddrInet4{Addr: to.As4()})
	}
	return unix.Sendto(p.v6, b, 0, &unix.SockaddrInet6{Addr: to.As16()})
}

// ping sends one request and waits for the reply or error. It does not repeat the request: a lost packet is an error.
func (p *pinger) ping(ctx context.Context, to netip.Addr, size int) (pong, error) {
	p.seq++
	start := time.Now()
	var got pong
	err := p.send(to, p.seq, size)
	if err == nil {
		got, err = p.receive(ctx, to, p.seq)
	}
	if err != nil {
		return pong{}, fmt.Errorf("%s: ping %s: %w", p.ns.Name(), to, err)
	}
	got.took = time.Since(start)
	return got, nil
}

// receive waits for the answer to a request.
func (p *pinger) receive(ctx context.Context, from netip.Addr, seq uint16) (pong, error) {
	fd := p.v4
	if from.Is6() {
		fd = p.v6
	}
	var buf [64 << 10]byte
	for {
		if err := ctx.Err(); err != nil {
			return pong{}, fmt.Errorf("no answer: %w", err)
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if ready <= 0 {
			if err != nil && !errors.Is(err, unix.EINTR) {
				return pong{}, err
			}
			continue
		}
		n, peer, err := unix.Recvfrom(fd, buf[:], 0)
		if err != nil {
			return pong{}, err
		}
		if got, ok := p.parse(buf[:n], addrOf(peer), from, seq); ok {
			return got, nil
		}
	}
}

// parse reads an ICMP packet and says whether it answers the request. IPv4 raw sockets deliver the IP header too.
func (p *pinger) parse(b []byte, peer, from netip.Addr, seq uint16) (pong, bool) {
	reply, inner := byte(0), 20
	if from.Is4() {
		if len(b) < 20 || len(b) < int(b[0]&15)*4+8 {
			return pong{}, false
		}
		b = b[int(b[0]&15)*4:]
	} else {
		reply, inner = 129, 40
	}
	if len(b) < 8 {
		return pong{}, false
	}
	if b[0] == reply {
		mine := peer == from && binary.BigEndian.Uint16(b[4:]) == p.id && binary.BigEndian.Uint16(b[6:]) == seq
		return pong{reply: true}, mine
	}
	if len(b) < 8+inner+8 { // an error quotes the packet it is about
		return pong{}, false
	}
	quoted := b[8+inner:]
	return pong{typ: b[0], code: b[1]}, binary.BigEndian.Uint16(quoted[4:]) == p.id &&
		binary.BigEndian.Uint16(quoted[6:]) == seq
}

func addrOf(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
