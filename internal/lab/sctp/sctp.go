// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/netns"
)

// Greeting is what a server tells who opens an association.
type Greeting struct {
	// Server is the name given to Serve.
	Server string `json:"server"`
	// Peer is the client's address as the server saw it. Local is the server's address that the client reached.
	Peer  netip.AddrPort `json:"peer"`
	Local netip.AddrPort `json:"local"`
	// Listed are the further addresses that the client's INIT named.
	Listed []netip.Addr `json:"listed,omitempty"`
}

// Server accepts associations.
type Server struct {
	name    string
	ports   []uint16
	sockets []*socket
	running sync.WaitGroup
}

// Serve starts a server that accepts associations on the ports at each of the addresses.
func Serve(ns *netns.NS, name string, addrs []netip.Addr, ports ...uint16) (*Server, error) {
	s := &Server{name: name, ports: ports}
	for _, a := range addrs {
		socket, err := open(ns, a)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: serve SCTP as %s: %w", ns.Name(), name, err), s.Close())
		}
		s.sockets = append(s.sockets, socket)
		s.running.Go(func() { s.serve(socket, a) })
	}
	return s, nil
}

// Close ends the server.
func (s *Server) Close() error {
	var errs []error
	for _, socket := range s.sockets {
		errs = append(errs, socket.close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}

func (s *Server) serve(socket *socket, at netip.Addr) {
	for {
		m, from, err := socket.receive()
		if err != nil {
			return
		}
		if slices.Contains(s.ports, m.dst) {
			s.answer(socket, m, from, at)
		}
	}
}

// answer sends the next message of the handshake, or the same data. The server keeps no state: what it needs comes back
// in the cookie.
func (s *Server) answer(socket *socket, m message, from, at netip.Addr) {
	reply := message{src: m.dst, dst: m.src}
	switch m.kind {
	case layers.SCTPChunkTypeInit:
		greeting, err := json.Marshal(Greeting{s.name, netip.AddrPortFrom(from, m.src), netip.AddrPortFrom(at, m.dst),
			m.listed})
		if err != nil {
			panic(err) // strings and addresses: cannot happen
		}
		// The server's tag is the client's: then it need not be remembered either.
		reply.kind, reply.tag, reply.initTag, reply.cookie = layers.SCTPChunkTypeInitAck, m.initTag, m.initTag, greeting
	case layers.SCTPChunkTypeCookieEcho:
		reply.kind, reply.tag = layers.SCTPChunkTypeCookieAck, m.tag
	case layers.SCTPChunkTypeData:
		reply.kind, reply.tag, reply.data = m.kind, m.tag, m.data
	default:
		return
	}
	_ = socket.send(reply, from) // an answer that the kernel refuses is as lost as one that is dropped on the way
}

// Dial says how to open an association.
type Dial struct {
	// From is the client's namespace, To where the association goes.
	From *netns.NS
	To   netip.AddrPort
	// Source is the client's address. The zero value lets the kernel choose.
	Source netip.Addr
	// Listed are further addresses that the client names as its own.
	Listed []netip.Addr
}

// Answer is the result of a probe.
type Answer struct {
	Greeting
	// Source is the client's own end.
	Source netip.AddrPort
}

// ports are given to clients in turn, so that no old conntrack entry can answer for a new client.
var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(20000)) }

func nextPort() uint16 { return uint16(32768 + ports.Add(1)%(60999-32768+1)) }

// Do opens an association, has the server return a word, and ends it. That takes three answers from the dialled
// address. No answer is an error.
func (d Dial) Do(ctx context.Context) (Answer, error) {
	a, err := d.do(ctx)
	if err != nil {
		err = fmt.Errorf("%s: SCTP to %s: %w", d.From.Name(), d.To, err)
	}
	return a, err
}

func (d Dial) do(ctx context.Context) (Answer, error) {
	source, err := d.source()
	if err != nil {
		return Answer{}, err
	}
	socket, err := open(d.From, source.Addr())
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = socket.close() }() // what it was for is over
	if err := socket.only(source.Port()); err != nil {
		return Answer{}, err
	}
	defer socket.until(ctx)()
	tag := max(rand.Uint32(), 1)
	first := message{kind: layers.SCTPChunkTypeInit, initTag: tag, listed: d.Listed}
	ack, err := d.exchange(ctx, socket, source.Port(), first, layers.SCTPChunkTypeInitAck, tag)
	if err != nil {
		return Answer{Source: source}, err
	}
	second := message{kind: layers.SCTPChunkTypeCookieEcho, tag: ack.initTag, cookie: ack.cookie}
	if _, err := d.exchange(ctx, socket, source.Port(), second, layers.SCTPChunkTypeCookieAck, tag); err != nil {
		return Answer{Source: source}, err
	}
	answer := Answer{Source: source}
	if err := json.Unmarshal(ack.cookie, &answer.Greeting); err != nil {
		return answer, fmt.Errorf("the cookie is no greeting: %w", err)
	}
	word := message{kind: layers.SCTPChunkTypeData, tag: ack.initTag, data: []byte("word")}
	echo, err := d.exchange(ctx, socket, source.Port(), word, layers.SCTPChunkTypeData, tag)
	if err == nil && string(echo.data) != string(word.data) {
		err = fmt.Errorf("the server returned %q for %q", echo.data, word.data)
	}
	if err != nil {
		return answer, err
	}
	end := message{src: source.Port(), dst: d.To.Port(), kind: layers.SCTPChunkTypeAbort, tag: ack.initTag}
	return answer, socket.send(end, d.To.Addr())
}

// source returns the client's address and a fresh port.
func (d Dial) source() (netip.AddrPort, error) {
	if d.Source.IsValid() {
		return netip.AddrPortFrom(d.Source, nextPort()), nil
	}
	routes, err := d.From.Netlink().RouteGet(d.To.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.AddrPort{}, fmt.Errorf("no route: %w", err)
	}
	from, ok := netip.AddrFromSlice(routes[0].Src)
	if !ok {
		return netip.AddrPort{}, errors.New("the route names no source address")
	}
	return netip.AddrPortFrom(from.Unmap(), nextPort()), nil
}

// initialRTO is the time after which a message without an answer is sent again, and then after twice as long (T1-init
// and T1-cookie, RFC 9260, section 4; RTO.Initial is in section 16).
const initialRTO = time.Second

// repeat calls send after initialRTO, again after twice as long, and so on, until the returned function is called. No
// call is under way any more when that returns.
func repeat(ctx context.Context, send func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for pause := initialRTO; ; pause *= 2 {
			silent, end := machine.WithTimeout(ctx, pause)
			<-silent.Done()
			end()
			if ctx.Err() != nil {
				return
			}
			send()
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// exchange sends one message, as often as it takes, and waits for the answer to it, which carries the client's tag.
func (d Dial) exchange(ctx context.Context, s *socket, port uint16, m message, want layers.SCTPChunkType,
	tag uint32) (message, error) {
	m.src, m.dst = port, d.To.Port()
	// A rule of the client's own namespace that drops a packet makes sending fail: it is as lost as on the way.
	if err := s.send(m, d.To.Addr()); err != nil && !errors.Is(err, unix.EPERM) {
		return message{}, err
	}
	defer repeat(ctx, func() { _ = s.send(m, d.To.Addr()) })()
	for {
		answer, from, err := s.receive()
		switch {
		case err != nil:
			return message{}, fmt.Errorf("no answer to %s: %w", m.kind, errors.Join(context.Cause(ctx), err))
		case answer.dst != port:
			continue // it came before the filter
		case from != d.To.Addr() || answer.src != d.To.Port():
			return message{}, fmt.Errorf("the answer to %s comes from %s, port %d", m.kind, from, answer.src)
		case answer.kind == layers.SCTPChunkTypeAbort:
			return message{}, fmt.Errorf("%s is answered by ABORT", m.kind)
		case answer.kind == want && answer.tag == tag:
			return answer, nil
		}
	}
}
