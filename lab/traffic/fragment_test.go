// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

// Fragments that arrive last first are one datagram to the server.
func TestFragments(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		s := serve(t, w.server, "web", []netip.Addr{f.server}, Port{"udp", 80})
		from := netip.AddrPortFrom(f.client, 61999)
		packet, err := Datagram{
			Src: from, Dst: netip.AddrPortFrom(f.server, 80), Payload: append([]byte("pieces 4000\n"), make([]byte, 4000)...),
		}.Packet()
		Must(t, err)
		pieces, err := Fragments(packet, 1000)
		Must(t, err)
		if len(pieces) != 5 {
			t.Fatalf("%s: %d pieces", f.name, len(pieces))
		}
		for _, p := range slices.Backward(pieces) {
			Must(t, SendRaw(w.client, p))
		}
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "udp", Fences: []netip.Addr{f.gateway}}
		if a := p.Do(Within(t)); a.Outcome != Reply { // whatever comes after the pieces is behind them
			t.Fatal(a)
		}
		if !slices.ContainsFunc(s.Arrivals(), func(x Arrival) bool { return x.Nonce == "pieces" && x.Peer == from }) {
			t.Errorf("%s: the server has seen %+v", f.name, s.Arrivals())
		}
	}
}

func TestFragmentsOfNonsense(t *testing.T) {
	packet, err := Datagram{Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2"),
		Payload: []byte("x")}.Packet()
	Must(t, err)
	for _, c := range []struct {
		packet []byte
		size   int
	}{{nil, 8}, {packet[:20], 8}, {packet, 0}, {packet, 12}} {
		if _, err := Fragments(c.packet, c.size); err == nil {
			t.Errorf("%d bytes in pieces of %d: no error", len(c.packet), c.size)
		}
	}
	whole, err := Fragments(packet, 1480)
	if err != nil || len(whole) != 1 || !bytes.Equal(whole[0][20:], packet[20:]) {
		t.Errorf("one piece: %v, %v", whole, err)
	}
}
