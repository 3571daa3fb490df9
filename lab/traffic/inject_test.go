// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

// A segment that no socket would send ends a connection if, and only if, its sequence number is the right one, which
// also proves its checksums.
func TestSegment(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "tcp", Fences: []netip.Addr{f.gateway}}
		c, a := p.Open(Within(t))
		if a.Outcome != Reply {
			t.Fatal(a)
		}
		before := counter(t, w.client, "Tcp", "InSegs")
		bad := counter(t, w.client, "Tcp", "InCsumErrors")
		send := func(s Segment) {
			t.Helper()
			s.Src, s.Dst = p.To, a.Source
			packet, err := s.Packet()
			Must(t, err)
			Must(t, SendRaw(w.server, packet))
		}
		send(Segment{Seq: 1, Ack: 1, ACK: true, PSH: true, Window: 1000, Payload: []byte("out of the window")})
		if b := c.Exchange(Within(t)); b.Outcome != Reply {
			t.Errorf("after a stray segment: %v", b)
		}
		if n := counter(t, w.client, "Tcp", "InSegs"); n <= before {
			t.Errorf("%d segments came in", n-before)
		}
		if n := counter(t, w.client, "Tcp", "InCsumErrors"); n != bad {
			t.Errorf("%d segments had a wrong checksum", n-bad)
		}
		Must(t, c.Close())
	}
}

// The answer to a datagram with a foreign source goes to that source.
func TestDatagram(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		s := serve(t, w.server, "web", []netip.Addr{f.server}, Port{"udp", 90})
		d := Datagram{
			Src: netip.AddrPortFrom(f.nobody, 4242), Dst: netip.AddrPortFrom(f.server, 90), Payload: []byte("spoofed"),
		}
		packet, err := d.Packet()
		Must(t, err)
		Must(t, SendRaw(w.client, packet))
		p := Probe{From: w.client, To: d.Dst, Proto: "udp", Fences: []netip.Addr{f.gateway}}
		if a := p.Do(Within(t)); a.Serial != 2 {
			t.Errorf("the spoofed one is not the first: %v", a)
		}
		if seen := s.Arrivals()[0]; seen.Nonce != "spoofed" || seen.Peer != d.Src {
			t.Errorf("%+v", seen)
		}
	}
	if SendRaw(w.client, []byte("short")) == nil {
		t.Error("five bytes were sent")
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		ctx := Within(t)
		mac, err := Resolve(ctx, w.router, "s0", f.server, f.server)
		Must(t, err)
		if want := Link(t, w.server, "eth0").Attrs().HardwareAddr; mac.String() != want.String() {
			t.Errorf("%s is at %s, not %s", f.server, mac, want)
		}
		if mac, err = Resolve(ctx, w.router, "s0", f.nobody, f.server); mac != nil || err != nil {
			t.Errorf("%s is at %s, %v", f.nobody, mac, err)
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		if _, err = Resolve(short, w.router, "s0", f.nobody, f.nobody); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("silent fence: %v", err)
		}
		cancel()
		if _, err = Resolve(ctx, w.lan, "r0", f.server, f.server); err == nil {
			t.Error("asked from a device without an address")
		}
	}
}
