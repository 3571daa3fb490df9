// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// relay relays the connections of a Service port to its endpoints.
type relay struct {
	sockets  sockets
	at       netip.Addr
	protocol corev1.Protocol
	log      *slog.Logger

	// idle is how long a UDP session lasts after its last datagram.
	idle time.Duration

	balancer balancer
	// port is the port of the current or last listener; 0 means that there was none.
	port uint16
	// listener is nil while the relay accepts no clients.
	listener listener

	// alive ends with the relay, and every connection with it. work holds the goroutines.
	alive context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	// clients counts connections, or UDP sessions.
	clients atomic.Int64
}

// ports allocates consecutive ports for relays. The kernel could find a free port, but that takes half a millisecond
// once some thousands are taken.
type ports struct{ dealt uint16 }

// The range of the ports of relays. It is above the range of NodePorts, which are held on all addresses.
const (
	firstPort = 32768
	portRange = 1<<16 - firstPort
)

func (p *ports) next() uint16 {
	p.dealt = (p.dealt + 1) % portRange
	return firstPort + p.dealt
}

// listener is the socket by which a relay accepts clients.
type listener interface {
	// forget ends sessions with endpoints that no longer serve, and reports whether other sessions still need the
	// listener.
	forget(serving []netip.AddrPort) (needed bool)
	// close accepts no more clients. TCP connections continue.
	close()
}

func newRelay(s sockets, at netip.Addr, p corev1.Protocol, log *slog.Logger) *relay {
	r := &relay{sockets: s, at: at, protocol: p, log: log, idle: sessionIdle}
	r.alive, r.end = context.WithCancel(context.Background())
	return r
}

// open opens the listener, at its last port if that is free. It does nothing if the listener is open.
func (r *relay) open(ctx context.Context) error {
	if r.listener != nil {
		return nil
	}
	if r.port != 0 {
		if err := r.openAt(ctx, r.port); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	for range portRange {
		if err := r.openAt(ctx, r.sockets.ports.next()); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return errors.New("no port is free")
}

func (r *relay) openAt(ctx context.Context, port uint16) error {
	at := netip.AddrPortFrom(r.at, port)
	if r.protocol == corev1.ProtocolUDP {
		return r.openUDP(ctx, at)
	}
	return r.openTCP(ctx, at)
}

// shut closes the listener. TCP connections continue.
func (r *relay) shut() {
	if r.listener != nil {
		r.listener.close()
		r.listener = nil
	}
}

// close ends all connections and waits for the goroutines.
func (r *relay) close() {
	r.shut()
	r.end()
	r.work.Wait()
}

// addr returns the address of the listener, which is invalid if that is closed.
func (r *relay) addr() netip.AddrPort {
	if r.listener == nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(r.at, r.port)
}

// pause waits briefly after an error such as EMFILE, and reports whether the relay continues. No event tells when the
// resource that ran out is available again.
func (r *relay) pause() bool {
	select {
	case <-r.alive.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}
