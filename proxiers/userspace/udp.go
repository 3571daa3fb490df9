// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sessionIdle is how long a UDP client keeps its session, and so its endpoint, after the last datagram either way. The
// kernel, which pays less for one, has 30 s; kube-proxy had 250 ms. A name server of a thousand queries a second, each
// from a new port, costs this many thousand sockets.
const sessionIdle = 10 * time.Second

// udpDoor is a socket that takes datagrams from clients. Each client, told by address and port, has a session: a socket
// of its own, connected to an endpoint, so that answers find back to it.
type udpDoor struct {
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
	d := &udpDoor{relay: r, conn: conn, sessions: map[netip.AddrPort]*session{}}
	r.door = d
	r.work.Go(func() { d.serve(raw) })
	return nil
}

// close ends all sessions too: there is nothing in UDP by which they would end, and their answers go by this socket.
func (d *udpDoor) close() {
	d.conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, s := range d.sessions {
		s.conn.Close()
	}
	clear(d.sessions)
}

func (d *udpDoor) forget(serving []netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for client, s := range d.sessions {
		if !slices.Contains(serving, s.endpoint) {
			delete(d.sessions, client)
			s.conn.Close()
		}
	}
	return len(d.sessions) > 0
}

func (d *udpDoor) serve(raw syscall.RawConn) {
	for {
		err := receive(raw, d.deliver)
		if errors.Is(err, net.ErrClosed) || err != nil && !d.relay.pause() {
			return
		}
	}
}

// deliver sends a client's datagram to its endpoint. An endpoint that has refused the one before loses the session, and
// the next one gets this datagram.
func (d *udpDoor) deliver(datagram []byte, client netip.AddrPort) {
	for range 2 {
		s, err := d.sessionOf(client)
		if err != nil {
			d.relay.log.Debug("no session", "client", client, "error", err)
			return
		}
		s.used.Store(time.Now().UnixNano())
		if _, err = s.conn.Write(datagram); err == nil {
			return
		}
		d.drop(s, err)
	}
}

// sessionOf is the client's session, a new one if it has none.
func (d *udpDoor) sessionOf(client netip.AddrPort) (*session, error) {
	d.mu.Lock()
	s := d.sessions[client]
	d.mu.Unlock()
	if s != nil {
		return s, nil
	}
	to := d.relay.balancer.next(client.Addr(), nil, time.Now())
	if !to.IsValid() {
		return nil, errors.New("there is no endpoint")
	}
	c, err := d.relay.sockets.ns.Dial(d.relay.alive, d.relay.sockets.network("udp"), netip.AddrPort{}, to)
	if err != nil {
		return nil, err
	}
	s = &session{client: client, endpoint: to, conn: c.(*net.UDPConn)}
	s.used.Store(time.Now().UnixNano())
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	d.sessions[client] = s
	d.relay.work.Go(func() { d.answer(s, raw) })
	return s, nil
}

// answer brings an endpoint's datagrams back to the client, until none has passed either way for a while.
func (d *udpDoor) answer(s *session, raw syscall.RawConn) {
	d.relay.clients.Add(1)
	defer d.relay.clients.Add(-1)
	for {
		// The client's datagrams move used, too: the deadline is when to look, and only a first guess at the end.
		idleAt := time.Unix(0, s.used.Load()).Add(d.relay.idle)
		if !idleAt.After(time.Now()) {
			d.drop(s, nil)
			return
		}
		_ = s.conn.SetReadDeadline(idleAt) // if it is closed, receive says so
		err := receive(raw, func(datagram []byte, _ netip.AddrPort) {
			s.used.Store(time.Now().UnixNano())
			_, _ = d.conn.WriteToUDPAddrPort(datagram, s.client) // it may get lost, as any datagram
		})
		var timeout net.Error
		if err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
			d.drop(s, err)
			return
		}
	}
}

// drop ends a session. A client whose endpoint has refused a datagram need not stick to it.
func (d *udpDoor) drop(s *session, why error) {
	if errors.Is(why, unix.ECONNREFUSED) {
		d.relay.balancer.unstick(s.client.Addr(), s.endpoint)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[s.client] == s {
		delete(d.sessions, s.client)
	}
	s.conn.Close()
}
