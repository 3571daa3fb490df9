// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

var localhosts = map[lab.Family]netip.Addr{lab.V4: netip.MustParseAddr("127.0.0.1"), lab.V6: netip.IPv6Loopback()}

// eachFamily runs a test with sockets of each family in a new node.
func eachFamily(t *testing.T, run func(*testing.T, sockets)) {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		t.Run(f.String(), func(t *testing.T) { run(t, newSockets(proxiertest.UpNode(t, f).Host.NS, f)) })
	}
}

// relayTo makes an open relay on a loopback address.
func relayTo(t *testing.T, s sockets, p corev1.Protocol, endpoints ...netip.AddrPort) *relay {
	t.Helper()
	r := newRelay(s, localhosts[s.ip], p, slog.New(slog.DiscardHandler))
	r.balancer.set(endpoints, 0)
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// serve runs a TCP server on a loopback address.
func serve(t *testing.T, s sockets, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := s.ns.Listen(t.Context(), s.network("tcp"), netip.AddrPortFrom(localhosts[s.ip], 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go handle(c.(*net.TCPConn))
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// closedPort returns an address without a listener.
func closedPort(s sockets) netip.AddrPort { return netip.AddrPortFrom(localhosts[s.ip], 9) }

func dial(t *testing.T, s sockets, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := s.dialTCP(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c io.Reader, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

// TestHalfClose: each direction of a connection ends separately. Bytes that are in flight when the second one ends
// still arrive.
func TestHalfClose(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB: more than the buffers on the way
	eachFamily(t, func(t *testing.T, s sockets) {
		for _, first := range []string{"client", "endpoint"} {
			t.Run(first+" first", func(t *testing.T) {
				got := make(chan []byte, 1)
				r := relayTo(t, s, corev1.ProtocolTCP, serve(t, s, func(c *net.TCPConn) {
					defer c.Close()
					if first == "endpoint" {
						_, _ = c.Write([]byte("bye"))
						_ = c.CloseWrite()
					}
					all, _ := io.ReadAll(c)
					if first == "client" {
						_, _ = c.Write(large)
					}
					got <- all
				}))
				c := dial(t, s, r.addr())
				send, receive := []byte("hello"), large
				if first == "endpoint" {
					send, receive = large, nil
					if s := read(t, c, 3); s != "bye" {
						t.Errorf("the client got %q", s)
					}
				}
				_, err := c.Write(send)
				must(t, err)
				must(t, c.CloseWrite())
				back, err := io.ReadAll(c)
				must(t, err)
				if !bytes.Equal(back, receive) {
					t.Errorf("the client got %d bytes, not %d", len(back), len(receive))
				}
				if all := <-got; !bytes.Equal(all, send) {
					t.Errorf("the endpoint got %d bytes, not %d", len(all), len(send))
				}
			})
		}
	})
}

// TestReset: a connection that breaks on one side does not look finished on the other.
func TestReset(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		got := make(chan error, 1)
		r := relayTo(t, s, corev1.ProtocolTCP, serve(t, s, func(c *net.TCPConn) {
			defer c.Close()
			if _, err := c.Write([]byte("?")); err != nil {
				return
			}
			var b [1]byte
			if _, err := c.Read(b[:]); err == nil && b[0] == 'r' {
				reset(c)
				return
			}
			_, err := c.Read(b[:])
			got <- err
		}))
		c := dial(t, s, r.addr())
		read(t, c, 1)
		_, err := c.Write([]byte("r"))
		must(t, err)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the endpoint reset its connection, and the client got %v", err)
		}
		c = dial(t, s, r.addr())
		read(t, c, 1)
		_, err = c.Write([]byte("w"))
		must(t, err)
		reset(c)
		if err := <-got; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the client reset its connection, and the endpoint got %v", err)
		}
	})
}

// TestNextEndpoint: a connection that one endpoint refuses goes to the next one. If all do, it is reset.
func TestNextEndpoint(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		alive := serve(t, s, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("x"))
			c.Close()
		})
		dead := closedPort(s)
		for range 10 {
			r := relayTo(t, s, corev1.ProtocolTCP, dead, netip.AddrPortFrom(dead.Addr(), 10),
				netip.AddrPortFrom(dead.Addr(), 11), alive)
			read(t, dial(t, s, r.addr()), 1)
		}
		r := relayTo(t, s, corev1.ProtocolTCP, dead)
		c, err := s.dialTCP(t.Context(), r.addr())
		if err == nil { // the reset may also come before it has returned
			_, err = c.Read(make([]byte, 1))
		}
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("no endpoint takes the connection, and the client got %v", err)
		}
	})
}

// TestShutAndClose: shutting a relay turns new clients away, closing it ends the others.
func TestShutAndClose(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		r := relayTo(t, s, corev1.ProtocolTCP, serve(t, s, func(c *net.TCPConn) { _, _ = io.Copy(c, c); c.Close() }))
		at := r.addr()
		c := dial(t, s, at)
		exchange := func() {
			t.Helper()
			_, err := c.Write([]byte("x"))
			must(t, err)
			read(t, c, 1)
		}
		exchange()
		r.shut()
		if _, err := s.dialTCP(t.Context(), at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("shut: a new client gets %v", err)
		}
		exchange()
		must(t, r.open(t.Context()))
		if r.addr() != at {
			t.Errorf("opened again at %s, not %s", r.addr(), at)
		}
		exchange()
		r.close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("closed: the client gets %v", err)
		}
		if n := r.clients.Load(); n != 0 {
			t.Errorf("%d clients remain", n)
		}
	})
}

// TestSplice: relayed bytes do not pass through this process. /proc/self/io counts only the reads and writes of the
// client and the endpoint, which are in this process, too.
func TestSplice(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		const size = 64 << 20
		r := relayTo(t, s, corev1.ProtocolTCP, serve(t, s, func(c *net.TCPConn) { drain(c); c.Close() }))
		c := dial(t, s, r.addr())
		before := bytesRead(t)
		chunk := make([]byte, 1<<20)
		for range size / len(chunk) {
			_, err := c.Write(chunk)
			must(t, err)
		}
		must(t, c.CloseWrite())
		drain(c)
		if got := bytesRead(t) - before; got < size || got > size+size/10 {
			t.Errorf("%d bytes were read to bring %d to the endpoint", got, size)
		}
	})
}

// drain reads a connection to its end.
func drain(c *net.TCPConn) {
	buf := make([]byte, 1<<20)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func bytesRead(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "rchar: ")
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(number)
	must(t, err)
	return n
}
