// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

var syncs = proxiertest.Sync{Proxier: New(), Sizes: []int{100, 1000, 5000, 10000}}

func BenchmarkFirst(b *testing.B)    { syncs.First(b) }
func BenchmarkEndpoint(b *testing.B) { syncs.Endpoint(b) }
func BenchmarkService(b *testing.B)  { syncs.Service(b) }

// BenchmarkMemory measures the memory of 10,000 unused relays.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := resident(b)
		r := relays(b, 10000)
		b.ReportMetric(float64(resident(b)-before)/10000, "bytes/relay")
		for _, one := range r {
			one.close()
		}
	}
}

func relays(b *testing.B, n int) []*relay {
	s := newSockets(proxiertest.UpNode(b, lab.V4).Host.NS, lab.V4)
	var all []*relay
	for range n {
		r := newRelay(s, netip.MustParseAddr("127.0.0.1"), corev1.ProtocolTCP, slog.New(slog.DiscardHandler))
		if err := r.open(context.Background()); err != nil {
			b.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// resident returns the memory in use by this process, in bytes.
func resident(b *testing.B) int {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// BenchmarkConnect is a connection, a byte there and back, and its end: straight, and through a relay.
func BenchmarkConnect(b *testing.B) {
	b.Run("straight", func(b *testing.B) {
		s, at := echo(b)
		exchanges(b, s, at)
	})
	b.Run("relayed", func(b *testing.B) {
		s, at := echo(b)
		r := newRelay(s, netip.MustParseAddr("127.0.0.1"), corev1.ProtocolTCP, slog.New(slog.DiscardHandler))
		r.balancer.set([]netip.AddrPort{at}, 0)
		if err := r.open(b.Context()); err != nil {
			b.Fatal(err)
		}
		exchanges(b, s, r.addr())
		r.close()
	})
}

func exchanges(b *testing.B, s sockets, to netip.AddrPort) {
	buf := []byte{1}
	for b.Loop() {
		c, err := s.dialTCP(b.Context(), to)
		if err == nil {
			_, err = c.Write(buf)
		}
		if err == nil {
			_, err = c.Read(buf)
		}
		if err != nil {
			b.Fatal(err)
		}
		reset(c)
	}
}

// echo is a server on the loopback device of a new node.
func echo(b *testing.B) (sockets, netip.AddrPort) {
	s := newSockets(proxiertest.UpNode(b, lab.V4).Host.NS, lab.V4)
	l, err := s.ns.Listen(b.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 1)
				for {
					if _, err := c.Read(buf); err != nil {
						c.Close()
						return
					}
					_, _ = c.Write(buf)
				}
			}()
		}
	}()
	return s, l.Addr().(*net.TCPAddr).AddrPort()
}

// BenchmarkThroughput is a large transfer, straight, and through a relay.
func BenchmarkThroughput(b *testing.B) {
	for _, how := range []string{"straight", "relayed"} {
		b.Run(how, func(b *testing.B) {
			s := newSockets(proxiertest.UpNode(b, lab.V4).Host.NS, lab.V4)
			l, err := s.ns.Listen(b.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			received := make(chan struct{})
			go func() {
				defer close(received)
				if c, err := l.Accept(); err == nil {
					drain(c.(*net.TCPConn))
				}
			}()
			to := l.Addr().(*net.TCPAddr).AddrPort()
			if how == "relayed" {
				r := newRelay(s, to.Addr(), corev1.ProtocolTCP, slog.New(slog.DiscardHandler))
				defer r.close()
				r.balancer.set([]netip.AddrPort{to}, 0)
				if err := r.open(b.Context()); err != nil {
					b.Fatal(err)
				}
				to = r.addr()
			}
			c, err := s.dialTCP(b.Context(), to)
			if err != nil {
				b.Fatal(err)
			}
			chunk := make([]byte, 1<<20)
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			c.Close()
			<-received
		})
	}
}
