// SPDX-License-Identifier: Apache-2.0

package given

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Socket is a UDP socket of a host that is not connected to anybody.
type Socket struct {
	conn *net.UDPConn
	addr netip.Addr
}

// OpenSocket opens one. It is the caller's to close.
func OpenSocket(ctx context.Context, w spec.World, host string, family lab.Family) (*Socket, error) {
	h, err := w.Host(host)
	if err != nil {
		return nil, err
	}
	anyone := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if family == lab.V6 {
		anyone = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	c, err := h.NS.ListenPacket(ctx, map[lab.Family]string{lab.V4: "udp4", lab.V6: "udp6"}[family], anyone.String())
	if err != nil {
		return nil, &spec.HarnessError{Err: err}
	}
	return &Socket{c.(*net.UDPConn), h.Addr(family)}, nil
}

// Close closes the socket.
func (s *Socket) Close() { s.conn.Close() }

// Addr is the host's primary address and the socket's port.
func (s *Socket) Addr() netip.AddrPort {
	return netip.AddrPortFrom(s.addr, s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
}

// Send sends a request to an echo server.
func (s *Socket) Send(to netip.AddrPort, nonce string) error {
	if _, err := s.conn.WriteToUDPAddrPort([]byte(nonce+"\n"), to); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	return nil
}

// Received is an answer of an echo server, and where it came from.
type Received struct {
	From netip.AddrPort
	traffic.Greeting
}

// Receive takes so many answers, or as many as there are when no more come.
func (s *Socket) Receive(count int) ([]Received, error) {
	var out []Received
	buf := make([]byte, 1<<16)
	for len(out) < count {
		if err := s.conn.SetReadDeadline(time.Now().Add(Patience())); err != nil {
			return out, &spec.HarnessError{Err: err}
		}
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return out, fmt.Errorf("receive: %w", err)
		}
		r := Received{From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
		line, _, _ := bytes.Cut(buf[:n], []byte("\n"))
		if err := json.Unmarshal(line, &r.Greeting); err != nil {
			return out, fmt.Errorf("%s answers with what is no greeting: %w", from, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// untilHere is what a socket sends itself to find the end of what has arrived.
const untilHere = "until here"

// Heard is what has arrived so far and was not taken yet, datagram by datagram, from whomever.
func (s *Socket) Heard() ([]string, error) {
	if err := s.Send(s.Addr(), untilHere); err != nil {
		return nil, err
	}
	var heard []string
	for buf := make([]byte, 1<<16); ; {
		if err := s.conn.SetReadDeadline(time.Now().Add(Patience())); err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		n, _, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		text := strings.TrimSuffix(string(buf[:n]), "\n")
		if text == untilHere {
			return heard, nil
		}
		heard = append(heard, text)
	}
}

// InPieces sends a request from a pod in fragments, the last one first, and wants an answer from where it was sent to.
// It leaves out IPv6 for a proxier that does not claim to take such.
func InPieces(ctx context.Context, w spec.World, host string, target spec.Target, family lab.Family) error {
	if family == lab.V6 && !w.Features()[spec.BridgedFragmentsV6] {
		return nil
	}
	to, err := w.Resolve(target, family, "udp")
	if err != nil {
		return err
	}
	s, err := OpenSocket(ctx, w, host, family)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := sendPieces(w, host, traffic.Datagram{Src: s.Addr(), Dst: to,
		Payload: append([]byte("pieces 4000\n"), make([]byte, 4000)...)}); err != nil {
		return &spec.HarnessError{Err: err}
	}
	got, err := s.Receive(1)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return fmt.Errorf("a datagram in fragments from %s to %s, the last one first, is not answered", host, target)
	}
	if got[0].From != to || got[0].Payload != 4000 {
		return fmt.Errorf("a datagram in fragments to %s is answered by %s, who got %d bytes of 4000", to, got[0].From,
			got[0].Payload)
	}
	return nil
}

func sendPieces(w spec.World, host string, d traffic.Datagram) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	packet, err := d.Packet()
	if err != nil {
		return err
	}
	pieces, err := traffic.Fragments(packet, 1200)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(pieces) {
		if err := traffic.SendRaw(h.NS, p); err != nil {
			return err
		}
	}
	return nil
}
