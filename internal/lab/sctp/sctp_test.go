// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

var here = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// alone returns a namespace with a loopback device.
func alone(t *testing.T) *netns.NS {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	ns, err := netns.New("sctp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func TestAnAssociation(t *testing.T) {
	ns := alone(t)
	server, err := Serve(ns, "me", []netip.Addr{here}, 5000, 5001)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	more := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, listed := range [][]netip.Addr{nil, more} {
		to := netip.AddrPortFrom(here, 5001)
		a, err := Dial{From: ns, To: to, Listed: listed}.Do(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if a.Server != "me" || a.Local != to || a.Peer != a.Source || a.Source.Addr() != here ||
			!slices.Equal(a.Listed, listed) {
			t.Errorf("got %+v", a)
		}
	}
	soon, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if a, err := (Dial{From: ns, To: netip.AddrPortFrom(here, 5002)}).Do(soon); err == nil ||
		!strings.Contains(err.Error(), "no answer to Init") {
		t.Errorf("a port that nobody serves: %+v, %v", a, err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// Packets of other associations at an address do not fill a client's socket.
func TestOthersPackets(t *testing.T) {
	ns := alone(t)
	for _, at := range []netip.Addr{here, netip.IPv6Loopback()} {
		client, err := open(ns, at)
		if err != nil {
			t.Fatal(err)
		}
		sender, err := open(ns, at)
		if err == nil {
			err = errors.Join(client.only(40000), sender.only(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		first := message{src: 1, dst: 40001, kind: layers.SCTPChunkTypeInit, initTag: 1}
		for range 2000 {
			if err := sender.send(first, at); err != nil {
				t.Fatal(err)
			}
		}
		first.dst, first.initTag = 40000, 7
		if err := sender.send(first, at); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		defer client.until(ctx)()
		if m, _, err := client.receive(); err != nil || m.dst != 40000 || m.initTag != 7 {
			t.Errorf("%s: the first packet is %+v, %v", at, m, err)
		}
		if err := errors.Join(client.close(), sender.close()); err != nil {
			t.Error(err)
		}
	}
}

// TestAnAnswerFromSomebodyElse: what does not come from the address that was dialled is no answer, and ABORT is a
// refusal.
func TestAnAnswerFromSomebodyElse(t *testing.T) {
	ns := alone(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		kind layers.SCTPChunkType
		port uint16 // of the answer
		want string
	}{
		{layers.SCTPChunkTypeInitAck, 6001, "comes from 127.0.0.1, port 6001"},
		{layers.SCTPChunkTypeAbort, 6000, "answered by ABORT"},
	} {
		socket, err := open(ns, here)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			for {
				m, from, err := socket.receive()
				if err != nil || m.kind == layers.SCTPChunkTypeInit {
					done <- err
					if err == nil {
						_ = socket.send(message{src: c.port, dst: m.src, kind: c.kind, tag: m.initTag, initTag: 1}, from)
					}
					return
				}
			}
		}()
		if a, err := (Dial{From: ns, To: netip.AddrPortFrom(here, 6000)}).Do(ctx); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", c.kind, a, err, c.want)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := socket.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseTakesNoRubbish(t *testing.T) {
	for _, b := range [][]byte{nil, {1, 2, 3}, make([]byte, 12), append(make([]byte, 12), 1, 0, 0xff, 0xff)} {
		if m, err := parse(b); err == nil {
			t.Errorf("%v is %+v", b, m)
		}
	}
}

// TestALostMessageIsSentAgain: the server misses the first INIT and the first COOKIE ECHO.
func TestALostMessageIsSentAgain(t *testing.T) {
	ns := alone(t)
	raw, err := open(ns, here)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	s := &Server{name: "late", ports: []uint16{80}}
	go func() {
		missed := map[layers.SCTPChunkType]bool{}
		for {
			m, from, err := raw.receive()
			switch {
			case err != nil:
				return
			case m.dst != 80:
			case !missed[m.kind]:
				missed[m.kind] = true
			default:
				s.answer(raw, m, from, here)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := Dial{From: ns, To: netip.AddrPortFrom(here, 80)}.Do(ctx)
	if err != nil || a.Server != "late" {
		t.Errorf("%+v, %v", a, err)
	}
}
