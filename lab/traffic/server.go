// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Server answers TCP and UDP requests in one namespace.
type Server struct {
	name    string
	sockets []int // listeners and UDP sockets, guarded by servers.mu
	streams map[int]*stream
	serial  int
	closed  bool

	logMu sync.Mutex
	log   []Arrival
}

// Serve starts a server that listens on every port at each of the addresses, so that answers come from the right one.
// Without addresses it listens on the wildcard addresses of the families that the namespace has.
func Serve(ns *netns.NS, name string, addrs []netip.Addr, ports ...Port) (*Server, error) {
	wildcard := len(addrs) == 0
	if wildcard {
		addrs = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	s := &Server{name: name, streams: map[int]*stream{}}
	err := ns.Do(func() error {
		for _, a := range addrs {
			for _, p := range ports {
				err := s.listen(netip.AddrPortFrom(a.Unmap(), p.Number), p.Proto)
				if wildcard && a.Is6() && errors.Is(err, unix.EAFNOSUPPORT) {
					continue
				}
				if err != nil {
					return fmt.Errorf("%s: serve %s on %s as %s: %w", ns.Name(), p, a, name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Name returns the server's name, as in its greetings.
func (s *Server) Name() string { return s.name }

// Arrivals returns what has reached the server so far, in order: requests, and TCP connections with an empty nonce.
func (s *Server) Arrivals() []Arrival {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return slices.Clone(s.log)
}

// LastArrival returns when the last TCP connection or UDP request reached the server; requests on a connection that is
// open already do not count. It is the zero time if none has.
func (s *Server) LastArrival() time.Time {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	for _, e := range slices.Backward(s.log) {
		if e.Proto == "udp" || e.Nonce == "" {
			return e.At
		}
	}
	return time.Time{}
}

// DelayAcks makes the acknowledgements of later TCP connections wait for the server's answers to go with
// (RFC 1122 4.2.3.2), so that an exchange takes a segment less. Without it Linux sends the first ones of a connection
// at once (tcp(7)).
func (s *Server) DelayAcks() error {
	servers.mu.Lock()
	defer servers.mu.Unlock()
	var errs []error
	for _, fd := range s.sockets {
		if _, tcp := servers.members[fd].(*listener); tcp {
			errs = append(errs, setOptions(fd, delayedAck))
		}
	}
	return errors.Join(errs...)
}

// Close stops the server. Its connections end with RST, so that none lingers in the namespace.
func (s *Server) Close() error {
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, fd := range s.sockets {
		// A child that is just being started may hold a copy of the socket, which would go on accepting connections.
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		servers.remove(fd)
	}
	for _, c := range s.streams {
		c.drop()
	}
	return nil
}

// listen opens one listening socket in the namespace of the calling thread and adds it to the loop.
func (s *Server) listen(at netip.AddrPort, proto string) error {
	fd, err := openSocket(proto, netns.Domain(at.Addr()))
	if err != nil {
		return err
	}
	m, err := s.prepare(fd, at, proto)
	if err == nil {
		servers.mu.Lock()
		defer servers.mu.Unlock()
		err = servers.add(fd, m)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	s.sockets = append(s.sockets, fd)
	return nil
}

func (s *Server) prepare(fd int, at netip.AddrPort, proto string) (member, error) {
	options := []option{noDelay, reuseAddr} // connections of a former server may be in TIME_WAIT
	if proto == "udp" {
		options = []option{askForDestination(at.Addr())}
	}
	if at.Addr().Is6() {
		options = append(options, v6Only)
	}
	if err := setOptions(fd, options...); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, netns.Sockaddr(at)); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	if proto == "udp" {
		return &datagrams{server: s, fd: fd, port: at.Port()}, nil
	}
	if err := resetOnClose(fd, true); err != nil { // connections inherit this and noDelay
		return nil, err
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &listener{server: s, fd: fd}, nil
}

// greet makes the answer to a request and logs it. The caller holds the loop's lock.
func (s *Server) greet(proto string, peer, local netip.AddrPort, r request, sum uint32) Greeting {
	s.serial++
	s.note(Arrival{time.Now(), proto, peer, local, r.nonce})
	return Greeting{
		Server: s.name, Peer: peer, Local: local,
		Nonce: r.nonce, Serial: s.serial, Payload: r.payload, Sum: sum,
	}
}

func (s *Server) note(e Arrival) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.log = append(s.log, e)
}
