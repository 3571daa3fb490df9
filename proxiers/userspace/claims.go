// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/observe"
)

// claims are the NodePorts that the proxy holds. Rules redirect the traffic before it reaches these sockets. The
// sockets prevent other processes from binding the port, and binding fails if a process has bound it already, which
// rules would cut off.
type claims struct {
	sockets sockets
	held    map[claim]io.Closer
	// released is when claims were released. began is when the proxy took over from one that may have held some.
	released map[claim]time.Time
	began    time.Time
}

// lingering is how long a released port may still be bound: a process that was just forked has a copy of every socket
// until it calls execve.
const lingering = time.Second

func newClaims(s sockets) claims {
	return claims{sockets: s, held: map[claim]io.Closer{}, released: map[claim]time.Time{}, began: time.Now()}
}

// claim is a NodePort at an address of the node, or at all of them (the unspecified address).
type claim struct {
	protocol corev1.Protocol
	at       netip.AddrPort
}

// hold binds the port, if it is not held already.
func (c *claims) hold(ctx context.Context, want claim) error {
	if c.held[want] != nil {
		return nil
	}
	socket, err := c.bind(ctx, want)
	if errors.Is(err, unix.EADDRINUSE) {
		patient, cancel := context.WithDeadline(ctx, c.free(want))
		defer cancel()
		_ = observe.Await(patient, nil, func(context.Context) error { // no event: it polls
			socket, err = c.bind(ctx, want)
			return err
		})
	}
	if err != nil {
		return err
	}
	delete(c.released, want)
	c.held[want] = socket
	return nil
}

// free returns the time after which another process must have bound a port that is still taken.
func (c *claims) free(want claim) time.Time {
	since, ok := c.released[want]
	if !ok {
		since = c.began
	}
	return since.Add(machine.Limit(lingering))
}

// bind makes the socket. A TCP socket listens, because others could otherwise bind the port with SO_REUSEADDR.
func (c *claims) bind(ctx context.Context, want claim) (io.Closer, error) {
	if want.protocol == corev1.ProtocolUDP {
		return c.sockets.ns.ListenPacket(ctx, c.sockets.network("udp"), want.at.String())
	}
	return c.sockets.ns.Listen(ctx, c.sockets.network("tcp"), want.at.String())
}

// release closes the socket of a claim, if it is held.
func (c *claims) release(one claim) {
	if socket := c.held[one]; socket != nil {
		socket.Close()
		delete(c.held, one)
		c.released[one] = time.Now()
	}
}
