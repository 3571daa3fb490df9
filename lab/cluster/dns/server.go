// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
)

// Port is the port of DNS servers, over UDP and TCP.
const Port = 53

// serverName is what a server answers with its own name (class CHAOS, type TXT, RFC 4892).
const serverName = "id.server."

// plainSize is how large an answer over UDP may be if the client says nothing about it (RFC 1035 2.3.4).
const plainSize = 512

// streamSize is how large an answer over TCP may be: its length comes in two bytes.
const streamSize = 1<<16 - 1

// idle is how long a TCP connection may be silent (RFC 7766 6.2.3: some seconds), longer on slow machines.
const idle = 10 * time.Second

// Server answers questions over UDP and TCP.
type Server struct {
	name  string
	store *store.Store

	mu      sync.Mutex
	open    map[io.Closer]struct{}
	closed  bool
	running sync.WaitGroup
}

// Serve starts a named server that listens on Port at each address, so that answers come from the right one.
func Serve(ctx context.Context, ns *netns.NS, name string, addrs []netip.Addr, state *store.Store) (*Server, error) {
	s := &Server{name: name, store: state, open: map[io.Closer]struct{}{}}
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, Port).String()
		datagrams, err := ns.ListenPacket(ctx, "udp", at)
		if err == nil {
			s.run(datagrams, func() { s.serveUDP(datagrams) })
			var streams net.Listener
			if streams, err = ns.Listen(ctx, "tcp", at); err == nil {
				s.run(streams, func() { s.accept(streams) })
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: serve DNS on %s: %w", ns.Name(), at, err), s.Close())
		}
	}
	return s, nil
}

// Close stops the server and all requests in progress.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var errs []error
	for c := range s.open {
		errs = append(errs, c.Close())
	}
	clear(s.open)
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(errs...)
}

// run serves a socket until it or the server is closed.
func (s *Server) run(c io.Closer, serve func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close() // the listener has not been used
		return
	}
	s.open[c] = struct{}{}
	s.running.Go(func() {
		serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, mine := s.open[c]; mine {
			delete(s.open, c)
			_ = c.Close() // the client has left, or sent what is no question
		}
	})
}

func (s *Server) serveUDP(c net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier answer
		}
		if reply := s.respond(buffer[:n], 0); reply != nil {
			_, _ = c.WriteTo(reply, from) // the client may have left
		}
	}
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			s.run(c, func() { s.serveTCP(c) })
		}
	}
}

// serveTCP answers questions that come one after another.
func (s *Server) serveTCP(c net.Conn) {
	for {
		_ = c.SetDeadline(time.Now().Add(machine.Limit(idle))) // fails on a closed connection, as the read will
		question, err := readMessage(c)
		if err != nil {
			return
		}
		reply := s.respond(question, streamSize)
		if reply == nil || writeMessage(c, reply) != nil {
			return
		}
	}
}

// readMessage reads a message over TCP, which comes after its length (RFC 1035 4.2.2).
func readMessage(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}
