// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Routers and judged programs send ICMP messages of any form.
func FuzzICMP(f *testing.F) {
	for _, text := range []string{
		"450000380001000040010000010203040506070803010000000000004500002800010000400600000506070801020304303900500000000100",
		"0100000000000000600000000014064020010db800000000000000000000000120010db8000000000000000000000002303900500000000100",
		"8100000000070009",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, len(text) > 80 && text[0] == '0')
	}
	f.Fuzz(func(t *testing.T, packet []byte, v6 bool) {
		from := netip.MustParseAddr("1.2.3.4")
		if v6 {
			from = netip.MustParseAddr("2001:db8::1")
		}
		m, ok := parseICMP(packet, from)
		if ok && !m.isEchoReply() && (!m.src.IsValid() || m.src.Addr().Is6() != v6 || m.dst.Addr().Is6() != v6) {
			t.Errorf("%x quotes %s > %s", packet, m.src, m.dst)
		}
	})
}

// Anyone may send any bytes to an echo server, in any pieces.
func FuzzStream(f *testing.F) {
	f.Add([]byte("nonce\nsecond 4\nabcd"), 3)
	f.Add([]byte("GET /path HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\n\n"), 7)
	f.Add([]byte("GET HTTP/1.\n\n"), 1)
	f.Add([]byte("a -1\n"), 100)
	f.Fuzz(func(t *testing.T, sent []byte, piece int) {
		s := &Server{name: "a", streams: map[int]*stream{}}
		at := netip.MustParseAddrPort("1.2.3.4:5")
		c := &stream{server: s, fd: -1, peer: at, local: at, waits: unix.EPOLLIN}
		for piece = max(1, piece); len(sent) > 0; {
			n := min(piece, len(sent))
			if !c.take(sent[:n]) {
				return
			}
			sent = sent[n:]
		}
		if len(c.line) > maxLine || c.body < 0 {
			t.Errorf("it waits for %d bytes and keeps %d", c.body, len(c.line))
		}
	})
}

// A judged program may change answers on their way.
func FuzzGreeting(f *testing.F) {
	f.Add(Greeting{Server: "a", Nonce: "b", Peer: netip.MustParseAddrPort("1.2.3.4:5")}.line())
	f.Fuzz(func(t *testing.T, line []byte) {
		if g, err := parseGreeting(line); err == nil {
			if again, err := parseGreeting(g.line()); err != nil || again != g {
				t.Errorf("%q is %v, and then %v, %v", line, g, again, err)
			}
		}
	})
}
