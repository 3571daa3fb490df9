// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sessionIdle is the time for which a UDP client keeps its session after the last datagram either way: the kernel's
// default for flows (nf_conntrack_udp_timeout). kube-proxy used 250 ms. Each session costs a socket.
const sessionIdle = 30 * time.Second

// udpListener is a socket that receives datagrams from clients. Each client address and port has a session: a socket of
// its own, connected to an endpoint, so that answers reach the right client.
type udpListener struct {
	relay *relay
	conn  *net.UDPConn

	mu       sync.Mutex
	sessions map[netip.AddrPort]*session
	closed   bool
}

type session struct {
	client, endpoint netip.AddrPort
	conn             *net.UDPConn
	// used is when the last datagram passed, in nanoseconds since 1970.
	used atomic.Int64
}

func (r *relay) openUDP(ctx context.Context, at netip.AddrPort) error {
	c, err := r.sockets.ns.ListenPacket(ctx, r.sockets.network("udp"), at.String())
	if err != nil {
		return err
	}
	conn := c.(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	r.port = uint16(conn.LocalAddr().(*net.UDPAddr).Port)
	l := &udpListener{relay: r, conn: conn, sessions: map[netip.AddrPort]*session{}}
	r.listener = l
	r.work.Go(func() { l.serve(raw) })
	return nil
}

// close also ends all sessions, because they do not end by themselves and their answers use this socket.
func (l *udpListener) close() {
	l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range l.sessions {
		s.conn.Close()
	}
	clear(l.sessions)
}

func (l *udpListener) forget(serving []netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if !slices.Contains(serving, s.endpoint) {
			l.removeLocked(s)
		}
	}
	return len(l.sessions) > 0
}

func (l *udpListener) serve(raw syscall.RawConn) {
	for {
		err := receive(raw, l.deliver)
		if errors.Is(err, net.ErrClosed) || err != nil && !l.relay.pause() {
			return
		}
	}
}

// deliver sends a client's datagram to its endpoint. If the endpoint has refused an earlier one, the client gets a new
// session.
func (l *udpListener) deliver(datagram []byte, client netip.AddrPort) {
	for range 2 {
		s, err := l.sessionOf(client)
		if err != nil {
			l.relay.log.Debug("no session", "client", client, "error", err)
			return
		}
		if _, err = s.conn.Write(datagram); err == nil {
			return
		}
		l.drop(s, err)
	}
}

// sessionOf returns the client's session, or a new one if there is none. It does not become idle before the datagram is
// sent that it was asked for. An endpoint that leaves meanwhile is forgotten either before the choice or, with the
// session, after it.
func (l *udpListener) sessionOf(client netip.AddrPort) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[client]; s != nil {
		s.used.Store(time.Now().UnixNano())
		return s, nil
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	to := l.relay.balancer.next(client.Addr(), nil, time.Now())
	if !to.IsValid() {
		return nil, errors.New("there is no endpoint")
	}
	c, err := l.relay.sockets.ns.Dial(l.relay.alive, l.relay.sockets.network("udp"), netip.AddrPort{}, to)
	if err != nil {
		return nil, err
	}
	s := &session{client: client, endpoint: to, conn: c.(*net.UDPConn)}
	s.used.Store(time.Now().UnixNano())
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	l.sessions[client] = s
	l.relay.work.Go(func() { l.answer(s, raw) })
	return s, nil
}

// answer relays an endpoint's datagrams to the client, until the session is idle.
func (l *udpListener) answer(s *session, raw syscall.RawConn) {
	l.relay.clients.Add(1)
	defer l.relay.clients.Add(-1)
	for {
		// The client's datagrams extend the session as well, so the deadline is only when to check again.
		idleAt, ended := l.endIdle(s)
		if ended {
			return
		}
		_ = s.conn.SetReadDeadline(idleAt) // fails if it is closed, as receive does
		err := receive(raw, func(datagram []byte, _ netip.AddrPort) {
			s.used.Store(time.Now().UnixNano())
			_, _ = l.conn.WriteToUDPAddrPort(datagram, s.client) // datagrams may get lost
		})
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.drop(s, err)
			return
		}
	}
}

// endIdle returns when a session becomes idle, or ends it if it is.
func (l *udpListener) endIdle(s *session) (at time.Time, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = time.Unix(0, s.used.Load()).Add(l.relay.idle)
	if at.After(time.Now()) {
		return at, false
	}
	l.removeLocked(s)
	return at, true
}

// drop ends a session. If the endpoint has refused a datagram, it also ends the client's lease of the endpoint.
func (l *udpListener) drop(s *session, why error) {
	if errors.Is(why, unix.ECONNREFUSED) {
		l.relay.balancer.dropLease(s.client.Addr(), s.endpoint)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(s)
}

// removeLocked closes a session and forgets it, unless its client has another one by now. It ends the client's flow as
// well: rules may lead the next datagram to another relay than this one, which may have no endpoints left.
func (l *udpListener) removeLocked(s *session) {
	s.conn.Close()
	if l.sessions[s.client] != s {
		return
	}
	delete(l.sessions, s.client)
	if err := l.relay.sockets.flows.End(s.client, l.relay.addr()); err != nil {
		l.relay.log.Warn("a flow goes on without a session", "error", err)
	}
}
