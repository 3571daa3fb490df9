// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// listener is a listening TCP socket of a server.
type listener struct {
	server *Server
	fd     int
}

func (l *listener) ready() {
	for {
		fd, peer, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // no more connections, or one that is already gone
		}
		l.accept(fd, netns.AddrPort(peer))
	}
}

func (l *listener) accept(fd int, peer netip.AddrPort) {
	local, err := localAddr(fd)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	c := &stream{server: l.server, fd: fd, peer: peer, local: local, waits: unix.EPOLLIN}
	if servers.add(fd, c) != nil {
		_ = unix.Close(fd)
		return
	}
	l.server.streams[fd] = c
	l.server.note(Arrival{At: time.Now(), Proto: "tcp", Peer: peer, Local: local})
	c.ready() // the request is often already there
}

// stream is an accepted connection: a parser of requests and a queue of answers.
type stream struct {
	server      *Server
	fd          int
	peer, local netip.AddrPort

	line []byte  // the beginning of a request line
	http string  // the path of an HTTP request whose header is being read
	body int     // bytes of payload still to come
	req  request // the request that they belong to
	sum  uint32

	out     []byte        // to be sent
	more    int           // bytes of payload to be sent after out
	payload *rand.ChaCha8 // the source of those bytes
	ended   bool          // the client has sent its FIN
	waits   uint32        // the registered epoll events
}

func (c *stream) drop() {
	delete(c.server.streams, c.fd)
	servers.remove(c.fd)
}

// ready sends the queued answers, and reads more only from a client that has fetched them.
func (c *stream) ready() {
	for range 16 { // times 64 KiB: one busy stream must not starve the others
		if !c.flush() {
			return
		}
		if c.ended {
			_ = resetOnClose(c.fd, false)
			c.drop()
			return
		}
		n, err := unix.Read(c.fd, servers.scratch[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			return
		}
		if err != nil {
			c.drop()
			return
		}
		c.ended = n == 0
		if !c.take(servers.scratch[:n]) {
			c.drop()
			return
		}
	}
}

// take parses received bytes. It returns false if they cannot be a request.
func (c *stream) take(b []byte) bool {
	for len(b) > 0 {
		if c.body > 0 {
			n := min(c.body, len(b))
			c.sum = crc32.Update(c.sum, castagnoli(), b[:n])
			c.body -= n
			b = b[n:]
		} else {
			end := bytes.IndexByte(b, '\n')
			if end < 0 {
				c.line = append(c.line, b...)
				return len(c.line) <= maxLine
			}
			line := append(c.line, b[:end]...)
			b, c.line = b[end+1:], nil
			if c.http != "" || isHTTP(line) {
				c.takeHTTP(line)
				continue
			}
			r, err := parseRequest(line)
			if err != nil {
				return false
			}
			c.req, c.body, c.sum = r, r.payload, 0
		}
		if c.body == 0 {
			c.answer()
		}
	}
	return true
}

func (c *stream) answer() {
	// A client that sends a second request before it has read the first answer gets both, in order.
	if c.more > 0 {
		c.out = append(c.out, c.nextPayload(c.more)...)
	}
	g := c.server.greet("tcp", c.peer, c.local, c.req, c.sum)
	c.out = append(c.out, g.line()...)
	if c.more = c.req.payload; c.more > 0 {
		c.payload = payloadOf(c.req.nonce)
	}
	c.flush()
	servers.answered(g)
}

// flush sends the queued answers, and reports whether all are sent. If not, ready is called again later.
func (c *stream) flush() bool {
	for len(c.out) > 0 || c.more > 0 {
		if len(c.out) == 0 {
			c.out = c.nextPayload(min(c.more, 64<<10))
			c.more -= len(c.out)
		}
		n, err := unix.SendmsgN(c.fd, c.out, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EAGAIN {
			c.waitFor(unix.EPOLLOUT)
			return false
		}
		if err != nil {
			c.out, c.more = nil, 0 // the next read meets the same error and ends the stream
			break
		}
		c.out = c.out[n:]
	}
	c.out = nil
	c.waitFor(unix.EPOLLIN)
	return true
}

func (c *stream) waitFor(events uint32) {
	if c.waits != events {
		c.waits = events
		_ = servers.ctl(unix.EPOLL_CTL_MOD, c.fd, events) // fails only for a socket outside the set
	}
}

func (c *stream) nextPayload(n int) []byte {
	b := make([]byte, n)
	_, _ = c.payload.Read(b) // never fails
	return b
}

// isHTTP reports whether a line begins an HTTP GET request (RFC 9112 3): GET /path HTTP/1.1.
func isHTTP(line []byte) bool {
	return bytes.HasPrefix(line, []byte("GET ")) && bytes.Contains(line, []byte(" HTTP/1."))
}

// takeHTTP handles a line of a request's head, and answers after the last one, which is empty.
func (c *stream) takeHTTP(line []byte) {
	if c.http == "" {
		c.http = strings.Fields(string(line))[1]
		return
	}
	if len(bytes.TrimSpace(line)) > 0 {
		return
	}
	g := c.server.greet("tcp", c.peer, c.local, request{nonce: c.http}, 0)
	body := g.line()
	c.out = append(c.out, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		len(body))...)
	c.out = append(c.out, body...)
	c.http = ""
	c.flush()
}
