// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serveUDP answers each datagram with a name and the datagram.
func serveUDP(t *testing.T, s sockets, name string) netip.AddrPort {
	t.Helper()
	c, err := s.ns.ListenPacket(t.Context(), s.network("udp"), netip.AddrPortFrom(localhosts[s.ip], 0).String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(append([]byte(name), buf[:n]...), from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func dialUDP(t *testing.T, s sockets, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := s.ns.Dial(t.Context(), s.network("udp"), netip.AddrPort{}, to)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

// ask sends a datagram and returns the answer.
func ask(t *testing.T, c net.Conn, what string) string {
	t.Helper()
	_, err := c.Write([]byte(what))
	must(t, err)
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	must(t, err)
	return string(buf[:n])
}

// TestSessions: a client stays with its endpoint, another one gets the next, and an endpoint that is gone loses its
// clients at once.
func TestSessions(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		endpoints := map[string]netip.AddrPort{"a": serveUDP(t, s, "a"), "b": serveUDP(t, s, "b")}
		r := relayTo(t, s, corev1.ProtocolUDP, endpoints["a"], endpoints["b"])
		one, two := dialUDP(t, s, r.addr()), dialUDP(t, s, r.addr())
		first, second := ask(t, one, ""), ask(t, two, "")
		if first == second {
			t.Errorf("both clients went to %s", first)
		}
		for i := range 5 {
			if got := ask(t, one, fmt.Sprint(i)); got != first+fmt.Sprint(i) {
				t.Errorf("datagram %d was answered %q, not by %s", i, got, first)
			}
		}
		r.balancer.set([]netip.AddrPort{endpoints[second]}, 0)
		r.listener.forget([]netip.AddrPort{endpoints[second]})
		if got := ask(t, one, ""); got != second {
			t.Errorf("%s is gone, and %s answers", first, got)
		}
		if got := ask(t, two, ""); got != second {
			t.Errorf("%s had nothing to do with it, and %s answers", second, got)
		}
		if n := r.clients.Load(); n > 3 {
			t.Errorf("%d sessions of two clients", n)
		}
	})
}

// TestNoSessionWithADepartedEndpoint: a session that begins while an endpoint leaves does not go to that endpoint.
func TestNoSessionWithADepartedEndpoint(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		endpoints := []netip.AddrPort{serveUDP(t, s, "a"), serveUDP(t, s, "b")}
		r := relayTo(t, s, corev1.ProtocolUDP, endpoints...)
		l := r.listener.(*udpListener)
		made, ended := make(chan error), make(chan struct{})
		defer close(ended)
		go func() { // clients that come all the time, one after the other
			for port := uint16(1); ; port++ {
				_, err := l.sessionOf(netip.AddrPortFrom(localhosts[s.ip], port))
				select {
				case made <- err:
				case <-ended:
					return
				}
			}
		}()
		for i := range 300 {
			stays := endpoints[i%2 : i%2+1]
			r.balancer.set(stays, 0)
			l.forget(stays)
			for range 2 { // the first one may have begun before
				must(t, <-made)
			}
			l.mu.Lock()
			for client, session := range l.sessions {
				if session.endpoint != stays[0] {
					t.Errorf("change %d: %s has a session with an endpoint that has left", i, client)
				}
			}
			l.mu.Unlock()
		}
	})
}

// TestLargeDatagram: datagrams come whole, up to the largest.
func TestLargeDatagram(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		r := relayTo(t, s, corev1.ProtocolUDP, serveUDP(t, s, "a"))
		payload := string(bytes.Repeat([]byte("x"), 60_000))
		if got := ask(t, dialUDP(t, s, r.addr()), payload); got != "a"+payload {
			t.Errorf("got %d bytes back", len(got))
		}
	})
}

// TestRefusedDatagram: a client whose endpoint refuses datagrams gets the next endpoint, even with session affinity.
func TestRefusedDatagram(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		for _, affinity := range []time.Duration{0, time.Hour} {
			alive := serveUDP(t, s, "a")
			r := relayTo(t, s, corev1.ProtocolUDP)
			r.balancer.set([]netip.AddrPort{closedPort(s), alive}, affinity)
			for range 4 { // until one that was refused is among them, but for a chance of 1/16
				c := dialUDP(t, s, r.addr())
				eventually(t, c)
			}
		}
	})
}

// eventually sends datagrams until one is answered.
func eventually(t *testing.T, c net.Conn) {
	t.Helper()
	buf := make([]byte, 16)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_, err := c.Write([]byte("x"))
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if _, err := c.Read(buf); err == nil {
			return
		}
	}
	t.Error("no datagram was ever answered")
}

// TestASessionThatIsAboutToEnd: a session that has been found for a datagram does not end before it is sent.
func TestASessionThatIsAboutToEnd(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		r := relayTo(t, s, corev1.ProtocolUDP, serveUDP(t, s, "a"))
		client := dialUDP(t, s, r.addr())
		ask(t, client, "")
		l := r.listener.(*udpListener)
		from := client.LocalAddr().(*net.UDPAddr).AddrPort()
		first, err := l.sessionOf(from)
		must(t, err)
		first.used.Store(0)
		if again, err := l.sessionOf(from); err != nil || again != first {
			t.Fatalf("the client has another session: %v", err)
		}
		if _, ended := l.endIdle(first); ended {
			t.Error("the session ended although a datagram had been given to it")
		}
	})
}

// TestIdleSession: a session ends after a time without datagrams in either direction.
func TestIdleSession(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		r := relayTo(t, s, corev1.ProtocolUDP)
		r.shut()
		r.idle = 100 * time.Millisecond
		r.balancer.set([]netip.AddrPort{serveUDP(t, s, "a"), serveUDP(t, s, "b")}, 0)
		must(t, r.open(t.Context()))
		c := dialUDP(t, s, r.addr())
		seen := map[string]bool{}
		for range 3 { // two rounds begin in there
			seen[ask(t, c, "")] = true
			waitFor(t, func() bool { return r.clients.Load() == 0 })
		}
		if len(seen) != 2 {
			t.Errorf("after each pause the client got the same endpoint, of %v", seen)
		}
	})
}

// waitFor polls until something holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatal("it never came to be")
		case <-tick.C:
		}
	}
}
