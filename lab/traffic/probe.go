// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Probe is one request of a client.
type Probe struct {
	// From is the client's namespace. It is required.
	From *netns.NS
	// Source fixes the client's address, port, or both. Otherwise the kernel chooses the address, and the port is one that
	// this process has not used lately, so that no old conntrack entry applies to a new probe.
	Source netip.AddrPort
	// Low chooses the port below 1024, unless Source fixes it. When the kernel tracks a connection that it does not
	// translate, and a translated flow already has the same addresses and ports, it gives the connection another source
	// port. For masqueraded flows of clients with higher ports it uses none of these (nf_nat_l4proto_unique_tuple in
	// net/netfilter/nf_nat_core.c).
	Low bool
	// To is the destination of the request. It is required.
	To netip.AddrPort
	// Proto is "tcp" or "udp". It is required.
	Proto string
	// Fences are addresses that answer ICMP echo over an allowed path, of the family of To. They prove silence at once.
	// Without them the probe assumes silence when the context ends. After a TCP handshake, and for UDP, they are used only
	// if this process runs servers; see the package comment.
	Fences []netip.Addr
	// FencesFrom is the namespace that sends the echoes, if replies could not reach From. Nil means From.
	FencesFrom *netns.NS
	// Patience is how much longer to listen after silence has been proved, for answers that a relay or a queue may delay.
	// Zero means not at all.
	Patience time.Duration
	// IfAccepted limits Patience to TCP connections that were accepted: the peer may be a relay, whose silence is not
	// proved. If the handshake itself meets silence, there is nothing to wait for.
	IfAccepted bool
	// Payload is how many bytes to send with the request and to get back.
	Payload int
	// Keep makes Open leave the socket open whatever the outcome of the first exchange, unless that is a fault.
	Keep bool
	// Mark is the mark of the client's packets (SO_MARK). Packets lose it at the edge of the client's namespace.
	Mark uint32
}

func (p Probe) String() string {
	if p.From == nil {
		return fmt.Sprintf("%s to %s", p.Proto, p.To)
	}
	return fmt.Sprintf("%s: %s to %s", p.From.Name(), p.Proto, p.To)
}

// Do sends one request on a connection of its own.
func (p Probe) Do(ctx context.Context) Answer {
	c, a := p.Open(ctx)
	if c != nil {
		if err := c.Close(); err != nil && a.Fault == nil {
			return Answer{Source: a.Source, Fault: fmt.Errorf("%s: %w", p, err)}
		}
	}
	return a
}

// Open connects and makes a first exchange. The Conn is nil unless the outcome is Reply or Keep is set.
func (p Probe) Open(ctx context.Context) (*Conn, Answer) {
	c, err := p.prepare()
	if err != nil {
		return nil, Answer{Fault: fmt.Errorf("%s: %w", p, err)}
	}
	a := c.Exchange(ctx)
	if a.Outcome == Reply || p.Keep && a.Fault == nil {
		return c, a
	}
	if err := c.Close(); err != nil && a.Fault == nil {
		a = Answer{Source: a.Source, Fault: fmt.Errorf("%s: %w", p, err)}
	}
	return nil, a
}

func (p Probe) prepare() (*Conn, error) {
	if p.From == nil {
		return nil, errors.New("want a namespace to send from")
	}
	if !p.To.IsValid() || p.To.Port() == 0 {
		return nil, errors.New("want an address and a port")
	}
	for _, f := range p.Fences {
		if netns.Domain(f) != netns.Domain(p.To.Addr()) {
			return nil, fmt.Errorf("fence %s is of another family", f)
		}
	}
	typ, err := sockType(p.Proto)
	if err != nil {
		return nil, err
	}
	c := &Conn{probe: p, echoID: uint16(echoID.Add(1)), tcp: typ == unix.SOCK_STREAM, icmp: -1, fences: -1}
	domain := netns.Domain(p.To.Addr())
	fd := -1
	err = p.From.Do(func() (err error) {
		if fd, err = unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		c.icmp, err = openICMP(domain)
		return err
	})
	if fd >= 0 {
		c.take(fd)
	}
	if err == nil && p.FencesFrom != nil {
		err = p.FencesFrom.Do(func() (err error) {
			c.fences, err = openICMP(domain)
			return err
		})
	}
	if err == nil {
		err = p.configure(fd, domain)
	}
	if err == nil {
		err = p.bind(fd)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (p Probe) configure(fd, domain int) error {
	if domain == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("set IPV6_V6ONLY: %w", err)
		}
	}
	if p.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)); err != nil {
			return fmt.Errorf("set SO_MARK: %w", err)
		}
	}
	if p.Proto == "tcp" {
		// RST on close: no TIME_WAIT keeps the port, and conntrack deletes the flow within seconds.
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return fmt.Errorf("set SO_LINGER: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("set TCP_NODELAY: %w", err)
		}
		return nil
	}
	// Without this a UDP socket reports port unreachable only, and ignores every other ICMP error.
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if domain == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("set IP_RECVERR: %w", err)
	}
	return nil
}

// The range that a probe chooses its port from: the kernel's default ephemeral range, which leaves NodePorts
// (30000-32767) alone. The first port is random, so that a process does not reuse the ports of the one before.
const firstPort, portCount = 32768, 60999 - 32768 + 1

// The range for Low: the one from which the kernel itself chooses for a connection from a privileged port above 511
// (nf_nat_core.c).
const firstLowPort, lowPortCount = 600, 1023 - 600 + 1

var portCounter, lowPortCounter atomic.Uint32

func init() {
	portCounter.Store(rand.Uint32N(portCount))
	lowPortCounter.Store(rand.Uint32N(lowPortCount))
}

func (p Probe) bind(fd int) error {
	from := p.Source.Addr()
	if !from.IsValid() {
		from = anyAddr(p.To.Addr())
	}
	if p.Source.Port() != 0 {
		if p.Proto == "tcp" {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
				return fmt.Errorf("set SO_REUSEADDR: %w", err)
			}
		}
		at := netip.AddrPortFrom(from, p.Source.Port())
		if err := unix.Bind(fd, netns.Sockaddr(at)); err != nil {
			return fmt.Errorf("bind to %s: %w", at, err)
		}
		return nil
	}
	first, count, counter := uint32(firstPort), uint32(portCount), &portCounter
	if p.Low {
		first, count, counter = firstLowPort, lowPortCount, &lowPortCounter
	}
	for range count {
		port := uint16(first + counter.Add(1)%count)
		if port == p.To.Port() {
			continue // TCP would connect to itself
		}
		err := unix.Bind(fd, netns.Sockaddr(netip.AddrPortFrom(from, port)))
		if err == nil {
			return nil
		}
		if err != unix.EADDRINUSE {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	return errors.New("bind: every port is taken")
}
