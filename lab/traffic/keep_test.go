// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

// A kept socket continues after an unanswered datagram, with the patience of SetPatience.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "udp", Fences: []netip.Addr{f.gateway}}
		if c, a := p.Open(Within(t)); c != nil || a.Outcome != Refused {
			t.Fatalf("%s, not to be kept: %v, %v", f.name, c, a)
		}
		p.Keep = true
		c, a := p.Open(Within(t))
		if c == nil || a.Outcome != Refused {
			t.Fatalf("%s, nobody serves: %v, %v", f.name, c, a)
		}
		defer c.Close()
		serve(t, w.server, "web", []netip.Addr{f.server}, Port{"udp", 80})
		if again := c.Exchange(Within(t)); again.Outcome != Reply || again.Source != a.Source {
			t.Errorf("%s, somebody serves: %v from %s, at first from %s", f.name, again, again.Source, a.Source)
		}
		c.SetPatience(time.Millisecond, false)
		NFT(t, w.router, "add table inet shut; add chain inet shut forward { type filter hook forward priority 0; policy "+
			"drop; }")
		if a := c.Exchange(Within(t)); a.Outcome != Silence || !strings.Contains(a.Detail, "and then no answer") {
			t.Errorf("%s, dropped: %v", f.name, a)
		}
		c.SetPatience(time.Minute, true) // which a datagram never is
		if a := c.Exchange(Within(t)); a.Outcome != Silence || strings.Contains(a.Detail, "and then no answer") {
			t.Errorf("%s, dropped, with patience for what is accepted: %v", f.name, a)
		}
		NFT(t, w.router, "delete table inet shut")
	}
}

// The sender of a datagram that is too big for a link gets an ICMP error, and its next one arrives in fragments.
func TestTooBig(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, Port{"udp", 80})
		routes, err := w.router.Netlink().RouteGet(f.server.AsSlice())
		Must(t, err)
		Must(t, w.router.Netlink().RouteAdd(&netlink.Route{
			Dst: netlink.NewIPNet(f.server.AsSlice()), LinkIndex: routes[0].LinkIndex, MTU: 1280, MTULock: true,
		}))
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "udp", Payload: 1350, Keep: true,
			Fences: []netip.Addr{f.gateway}}
		c, a := p.Open(Within(t))
		if c == nil || a.Outcome != Unreachable {
			t.Fatalf("%s: %v, %v", f.name, c, a)
		}
		defer c.Close()
		if a := c.Exchange(Within(t)); a.Outcome != Reply {
			t.Errorf("%s, once the path is known: %v", f.name, a)
		}
	}
}
