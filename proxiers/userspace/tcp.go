// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/machine"
)

// tcpListener is a listening socket.
type tcpListener struct{ net.Listener }

func (r *relay) openTCP(ctx context.Context, at netip.AddrPort) error {
	l, err := r.sockets.ns.Listen(ctx, r.sockets.network("tcp"), at.String())
	if err != nil {
		return err
	}
	r.port = uint16(l.Addr().(*net.TCPAddr).Port)
	r.listener = tcpListener{l}
	r.work.Go(func() { r.accept(l) })
	return nil
}

func (l tcpListener) close() { l.Close() }

// forget does nothing: a removed endpoint ends its connections itself, or stops answering keep-alives.
func (l tcpListener) forget([]netip.AddrPort) bool { return false }

func (r *relay) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			r.work.Go(func() { r.carry(c.(*net.TCPConn)) })
		case errors.Is(err, net.ErrClosed) || !r.pause():
			return
		}
	}
}

// carry relays one connection.
func (r *relay) carry(client *net.TCPConn) {
	r.clients.Add(1)
	defer r.clients.Add(-1)
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	endpoint, err := r.connect(from.Addr().Unmap())
	if err != nil {
		r.log.Debug("no endpoint takes the connection", "client", from, "error", err)
		reset(client)
		return
	}
	// An idle connection would never notice that its endpoint has vanished.
	_ = endpoint.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second,
		Count: 3})
	p := pair{client, endpoint}
	stop := context.AfterFunc(r.alive, p.reset)
	defer stop()
	p.run()
}

// The first and the longest time for an endpoint to answer. It grows with every attempt: a single silent endpoint may
// be dead, but if none answers, the node may be slow.
const (
	patience     = time.Second
	morePatience = 8 * time.Second
)

// connect connects to an endpoint. It tries each, and at least four times.
func (r *relay) connect(client netip.Addr) (*net.TCPConn, error) {
	var tried []netip.AddrPort
	err := errors.New("there is no endpoint")
	for wait := patience; len(tried) < max(r.balancer.size(), 4); wait = min(2*wait, morePatience) {
		to := r.balancer.next(client, tried, time.Now())
		if !to.IsValid() {
			break
		}
		ctx, cancel := machine.WithTimeout(r.alive, wait)
		var c *net.TCPConn
		c, err = r.sockets.dialTCP(ctx, to)
		cancel()
		if err == nil || r.alive.Err() != nil {
			return c, err
		}
		tried = append(tried, to)
	}
	return nil, err
}

// pair holds the two connections that a relay has joined.
type pair struct{ client, endpoint *net.TCPConn }

// run copies bytes both ways until both are closed. The kernel still delivers what it has buffered.
func (p pair) run() {
	var back sync.WaitGroup
	back.Go(func() { p.forward(p.client, p.endpoint) })
	p.forward(p.endpoint, p.client)
	back.Wait()
	p.client.Close()
	p.endpoint.Close()
}

// forward copies bytes one way, and closes that way at their end. If one connection is reset, it resets the other: half
// of a message must not look complete. ReadFrom uses splice(2), so the bytes never pass this process.
func (p pair) forward(to, from *net.TCPConn) {
	_, err := to.ReadFrom(from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		p.reset()
	}
}

func (p pair) reset() {
	reset(p.client)
	reset(p.endpoint)
}

// reset closes a connection at once, with a RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails if it is closed
	c.Close()
}
