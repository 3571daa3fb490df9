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
	// Source fixes the client's address, port, or both. Otherwise the kernel chooses the address, and the probe a port
	// that this process has not used lately, to which no old conntrack entry applies.
	Source netip.AddrPort
	// PrivilegedPort chooses the port below 1024, unless Source fixes it. The kernel changes the source port of an
	// untranslated connection if a translated flow has the same addresses and ports, but masquerades clients with higher
	// ports to none of these (nf_nat_l4proto_unique_tuple in net/netfilter/nf_nat_core.c).
	PrivilegedPort bool
	// To is the destination of the request. It is required.
	To netip.AddrPort
	// Proto is "tcp" or "udp". It is required.
	Proto string
	// Fences are addresses of the family of To that answer ICMP echo over an allowed path. They prove silence at once;
	// without them the probe waits until the context ends. After a TCP handshake, and for UDP, they need servers in
	// this process; see the package comment.
	Fences []netip.Addr
	// OwnServers says that only servers of this process can answer, so that Fences also prove silence while it has none.
	OwnServers bool
	// FencesFrom is the namespace that sends the echoes, if replies could not reach From. Nil means From.
	FencesFrom *netns.NS
	// Patience is how much longer to wait for an answer after the fences, because a relay or a queue may delay it.
	Patience time.Duration
	// IfAccepted limits Patience to TCP connections that were accepted, because a userspace relay may have accepted
	// them.
	IfAccepted bool
	// Payload is how many bytes to send with the request. The server sends as many back.
	Payload int
	// Single says that the connection ends after its first exchange. Then the client's TCP acknowledges no packet at
	// once: its request, and its RST, follow anyway.
	Single bool
	// Keep makes Open leave the socket open after every outcome, not only Reply, unless the probe has a fault.
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

// Do sends one request on a new connection.
func (p Probe) Do(ctx context.Context) Answer {
	p.Single = true
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
	c := &Conn{probe: p, echoID: uint16(echoID.Add(1)), tcp: p.Proto == "tcp", fd: -1, icmp: -1, fences: -1}
	if err := c.open(netns.Domain(p.To.Addr())); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open opens the sockets. The caller closes the Conn after an error.
func (c *Conn) open(domain int) error {
	p := c.probe
	err := p.From.Do(func() (err error) {
		if c.fd, err = openSocket(p.Proto, domain); err == nil {
			c.icmp, err = openICMP(domain)
		}
		return err
	})
	if err == nil && p.FencesFrom != nil {
		err = p.FencesFrom.Do(func() (err error) {
			c.fences, err = openICMP(domain)
			return err
		})
	}
	if err == nil {
		err = p.configure(c.fd, domain)
	}
	if err == nil {
		err = p.bind(c.fd)
	}
	return err
}

func (p Probe) configure(fd, domain int) error {
	var options []option
	if domain == unix.AF_INET6 {
		options = append(options, v6Only)
	}
	if p.Mark != 0 {
		options = append(options, option{unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark), "SO_MARK"})
	}
	if p.Proto == "udp" {
		return setOptions(fd, append(options, icmpErrors(domain))...)
	}
	if err := resetOnClose(fd, true); err != nil { // and conntrack deletes the flow within seconds
		return err
	}
	if p.Single {
		options = append(options, delayedAck)
	}
	return setOptions(fd, append(options, noDelay)...)
}

// The range that a probe chooses its port from: the kernel's default ephemeral range, which leaves NodePorts
// (30000-32767) alone. The first port is random, so that a process does not reuse the ports of the one before.
const firstPort, portCount = 32768, 60999 - 32768 + 1

// The range for PrivilegedPort, from which the kernel chooses for privileged ports above 511 (nf_nat_core.c).
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
			if err := setOptions(fd, reuseAddr); err != nil {
				return err
			}
		}
		at := netip.AddrPortFrom(from, p.Source.Port())
		if err := unix.Bind(fd, netns.Sockaddr(at)); err != nil {
			return fmt.Errorf("bind to %s: %w", at, err)
		}
		return nil
	}
	first, count, counter := uint32(firstPort), uint32(portCount), &portCounter
	if p.PrivilegedPort {
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
