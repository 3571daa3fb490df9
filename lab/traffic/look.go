// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// dial starts the connection.
func (c *Conn) dial() Answer {
	c.dialed = true
	err := unix.Connect(c.fd, netns.Sockaddr(c.probe.To))
	if err != nil && err != unix.EINPROGRESS {
		return c.fromError("connect", err)
	}
	c.up = !c.tcp
	if c.local, err = localAddr(c.fd); err != nil {
		return Answer{Fault: err}
	}
	return Answer{}
}

// send sends as much of the request as the socket takes.
func (c *Conn) send() Answer {
	n, err := unix.SendmsgN(c.fd, c.out, nil, nil, unix.MSG_NOSIGNAL)
	switch {
	case err == unix.EAGAIN:
	case err == unix.EPERM && !c.tcp:
		// A netfilter hook of the sender's own namespace has dropped the datagram; an ICMP error may say more.
		c.note, c.out = "dropped in the sender's own namespace", nil
	case err == unix.EMSGSIZE && len(c.out) > maxPayload:
		return Answer{Fault: fmt.Errorf("send %d bytes: %w", len(c.out), err)}
	case err != nil:
		return c.explain(c.fromError("send", err))
	default:
		c.out = c.out[n:]
	}
	return Answer{}
}

// look checks the sockets without waiting, ICMP last: a later error finds the other socket unlocked.
func (c *Conn) look() (a Answer) {
	if c.up {
		a = c.receive()
	} else {
		a = c.connected()
	}
	return c.explain(a)
}

// explain replaces an error of the socket by the ICMP message that caused it.
func (c *Conn) explain(a Answer) Answer {
	c.readICMP()
	if c.refused && a.Outcome != Reply && a.Outcome != Reset {
		return Answer{Outcome: c.refusal.outcome(), Detail: c.refusal.String()}
	}
	return a
}

// connected checks whether the TCP handshake has ended.
func (c *Conn) connected() Answer {
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, 0); err != nil && err != unix.EINTR {
		return Answer{Fault: fmt.Errorf("poll: %w", err)}
	}
	if fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
		errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return Answer{Fault: fmt.Errorf("get SO_ERROR: %w", err)}
		}
		if errno != 0 {
			return c.fromError("connect", unix.Errno(errno))
		}
	}
	c.up = fds[0].Revents&unix.POLLOUT != 0
	return Answer{}
}

// receive reads the available part of the answer.
func (c *Conn) receive() Answer {
	buf := c.in.buffer()
	for {
		n, err := unix.Read(c.fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return Answer{}
		case err != nil:
			return c.fromError("receive", err)
		case n == 0 && c.tcp:
			return Answer{Outcome: Reset, Detail: "closed by FIN without an answer"}
		}
		var done bool
		if c.tcp {
			done, err = c.in.stream(buf[:n])
		} else {
			done, err = c.in.datagram(buf[:n])
		}
		if err != nil {
			return Answer{Outcome: Garbled, Detail: err.Error()}
		}
		if done {
			return Answer{Outcome: Reply, Greeting: c.in.greeting}
		}
	}
}

// readICMP reads everything from the raw socket.
func (c *Conn) readICMP() {
	for c.takeICMP() {
	}
}

// takeICMP reads one message from the raw socket. It returns false if there is none.
func (c *Conn) takeICMP() bool {
	m, ok := receiveICMP(c.icmp)
	switch {
	case !ok:
		return false
	case m.isEchoReply():
		c.takeEcho(m)
	case m.proto != c.protocol() || m.src.Port() != c.local.Port() || m.outcome() == 0:
	case m.src == c.local && m.dst == c.probe.To:
		c.refusal, c.refused = m, true
	default:
		// The port is ours and the addresses are not: a node failed to translate the quoted packet back.
		c.stray = fmt.Sprintf("%s quotes %s -> %s instead of our packet", m, m.src, m.dst)
	}
	return true
}

func (c *Conn) protocol() uint8 {
	if c.tcp {
		return unix.IPPROTO_TCP
	}
	return unix.IPPROTO_UDP
}

// fromError separates socket errors that the network caused from those of the probe itself.
func (c *Conn) fromError(doing string, err error) Answer {
	errno := unix.Errno(0)
	errors.As(err, &errno)
	switch errno {
	case unix.ECONNREFUSED:
		if !c.tcp {
			return Answer{Outcome: Refused, Detail: "ICMP port unreachable"}
		}
		return Answer{Outcome: Refused, Detail: "RST"}
	case unix.ECONNRESET, unix.EPIPE:
		return Answer{Outcome: Reset, Detail: "RST"}
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL:
		// Routes of type unreachable, prohibit and blackhole give the last three (fib_props in fib_semantics.c).
		return Answer{Outcome: Unreachable, Detail: fmt.Sprintf("%s: %v", doing, err)}
	case unix.EMSGSIZE:
		// A datagram that must not be fragmented exceeded an MTU: ICMP fragmentation needed, ICMPv6 packet too big.
		return Answer{Outcome: Unreachable, Detail: doing + ": too big for the path"}
	case unix.ETIMEDOUT:
		return Answer{Outcome: Silence, Detail: "the kernel gave up sending again"}
	}
	return Answer{Fault: fmt.Errorf("%s: %w", doing, err)}
}

// incoming assembles an answer and checks it.
type incoming struct {
	req  request
	want uint32 // CRC-32C of the payload in both directions
	buf  []byte

	line     []byte
	greeting Greeting
	body     int // bytes of payload still to come
	sum      uint32
}

func (i *incoming) expect(r request, payload []byte) {
	i.req, i.want = r, crc32.Checksum(payload, castagnoli())
}

func (i *incoming) buffer() []byte {
	if i.buf == nil {
		i.buf = make([]byte, min(maxLine+i.req.payload, maxDatagram))
	}
	return i.buf
}

// datagram reports whether b is the answer. It skips answers to older requests.
func (i *incoming) datagram(b []byte) (done bool, err error) {
	line, rest := cutLine(b)
	if i.greeting, err = parseGreeting(line); err != nil {
		return false, err
	}
	i.sum, i.body = crc32.Checksum(rest, castagnoli()), 0
	return i.complete()
}

// stream handles the next bytes of a TCP connection, and reports whether the answer is complete.
func (i *incoming) stream(b []byte) (done bool, err error) {
	for len(b) > 0 {
		if i.body == 0 {
			var rest []byte
			had := len(i.line)
			i.line = append(i.line, b...)
			line, _ := cutLine(i.line)
			if len(line) == len(i.line) {
				if len(line) > maxLine {
					return false, fmt.Errorf("%.60q... is not a greeting", line)
				}
				return false, nil
			}
			rest = b[len(line)+1-had:]
			if i.greeting, err = parseGreeting(line); err != nil {
				return false, err
			}
			i.line, i.body, i.sum, b = nil, i.greeting.Payload, 0, rest
		}
		n := min(i.body, len(b))
		i.sum = crc32.Update(i.sum, castagnoli(), b[:n])
		i.body -= n
		b = b[n:]
		if i.body == 0 {
			if done, err = i.complete(); done || err != nil {
				return done, err
			}
		}
	}
	return false, nil
}

func (i *incoming) complete() (bool, error) {
	g := i.greeting
	switch {
	case g.Nonce != i.req.nonce:
		return false, nil
	case g.Payload != i.req.payload:
		return false, fmt.Errorf("%s speaks of %d bytes of payload, not %d", g.Server, g.Payload, i.req.payload)
	case g.Sum != i.want:
		return false, fmt.Errorf("the payload was changed on its way to %s", g.Server)
	case i.sum != i.want:
		return false, fmt.Errorf("the payload was changed on its way from %s", g.Server)
	}
	return true, nil
}
