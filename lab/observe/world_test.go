// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// world is a client and a server with a router between them:
//
//	client eth0 ── c0 router s0 ── eth0 server
//	10.0.1.2    10.0.1.1  10.0.2.1   10.0.2.2
//	fd00:1::2   fd00:1::1 fd00:2::1  fd00:2::2
type world struct{ client, router, server *netns.NS }

type family struct {
	name                                 string
	any, client, gateway, router, server netip.Addr
	vip                                  netip.AddrPort // translated to port 80 of the server by nat
}

var families = []family{
	{"v4", netip.IPv4Unspecified(), addr("10.0.1.2"), addr("10.0.1.1"), addr("10.0.2.1"), addr("10.0.2.2"),
		netip.MustParseAddrPort("10.96.0.1:8080")},
	{"v6", netip.IPv6Unspecified(), addr("fd00:1::2"), addr("fd00:1::1"), addr("fd00:2::1"), addr("fd00:2::2"),
		netip.MustParseAddrPort("[fd00:96::1]:8080")},
}

// nat makes the router translate the virtual addresses, and masquerade UDP.
const nat = `table inet nat {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		meta l4proto { tcp, udp } ip daddr 10.96.0.1 th dport 8080 dnat ip to 10.0.2.2:80
		meta l4proto { tcp, udp } ip6 daddr fd00:96::1 th dport 8080 dnat ip6 to [fd00:2::2]:80
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		meta l4proto udp ct status dnat masquerade
	}
}`

var addr = netip.MustParseAddr

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{NewNS(t, "client"), NewNS(t, "router"), NewNS(t, "server")}
	for _, ns := range []*netns.NS{w.client, w.router, w.server} {
		Must(t, ns.SetSysctls(
			netns.Setting{Key: "net.ipv4.ip_forward", Value: "1"},
			netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "1"},
			netns.Setting{Key: "net.ipv6.conf.default.accept_dad", Value: "0"},
			netns.Setting{Key: "net.ipv4.conf.all.rp_filter", Value: "0"},
			netns.Setting{Key: "net.ipv4.conf.default.rp_filter", Value: "0"},
		))
		Up(t, ns, "lo")
	}
	Veth(t, w.client, "eth0", w.router, "c0")
	Veth(t, w.server, "eth0", w.router, "s0")
	for _, f := range families {
		length := 24
		if f.client.Is6() {
			length = 64
		}
		Address(t, w.client, "eth0", f.client, length)
		Address(t, w.router, "c0", f.gateway, length)
		Address(t, w.router, "s0", f.router, length)
		Address(t, w.server, "eth0", f.server, length)
		Route(t, w.client, f.any, 0, f.gateway)
		Route(t, w.server, f.any, 0, f.router)
	}
	for _, f := range families {
		ctx := Within(t)
		Must(t, Await(ctx, nil, func(ctx context.Context) error { // links and addresses come up in the background
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // before TCP tries again of itself
			defer cancel()
			p := traffic.Probe{From: w.client, To: netip.AddrPortFrom(f.server, 9), Proto: "tcp"}
			if a := p.Do(ctx); a.Outcome != traffic.Refused {
				return errors.New(a.String())
			}
			return nil
		}))
	}
	return w
}

// open makes a connection from the client and leaves it open until the test ends.
func open(t testing.TB, w *world, proto string, to netip.AddrPort) (*traffic.Conn, traffic.Answer) {
	t.Helper()
	c, a := traffic.Probe{From: w.client, To: to, Proto: proto}.Open(Within(t))
	if a.Outcome != traffic.Reply {
		t.Fatal(a)
	}
	t.Cleanup(func() { c.Close() })
	return c, a
}

func serve(t testing.TB, w *world) {
	t.Helper()
	s, err := traffic.Serve(w.server, "web", nil, traffic.Port{Proto: "tcp", Number: 80},
		traffic.Port{Proto: "udp", Number: 80})
	Must(t, err)
	t.Cleanup(func() { s.Close() })
}
