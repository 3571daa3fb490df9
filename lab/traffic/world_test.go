// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// world is a client and a server with a router and a bridge between them:
//
//	client eth0 ── c0 router s0 ── r0 lan(bridge br0) s0 ── eth0 server
//	10.0.1.2    10.0.1.1  10.0.2.1                       10.0.2.2
//	fd00:1::2   fd00:1::1 fd00:2::1                      fd00:2::2
type world struct {
	client, router, lan, server *netns.NS
}

// family is the world's addresses of one IP family. The server has one more address on its loopback device (alias);
// nobody has the address nobody, which is routed to the server's segment.
type family struct {
	name                                           string
	client, gateway, router, server, alias, nobody netip.Addr
	nft                                            string // "ip" or "ip6"
}

var families = []family{
	{"v4", addr("10.0.1.2"), addr("10.0.1.1"), addr("10.0.2.1"), addr("10.0.2.2"), addr("10.0.3.1"), addr("10.0.2.9"),
		"ip"},
	{"v6", addr("fd00:1::2"), addr("fd00:1::1"), addr("fd00:2::1"), addr("fd00:2::2"), addr("fd00:3::1"),
		addr("fd00:2::9"), "ip6"},
}

var addr = netip.MustParseAddr

// newWorld makes the network of one test. Tests with a world are not parallel: a program that another test starts holds
// a copy of every socket between its fork and its exec, so a port that was closed may still be in use.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{client: NewNS(t, "client"), router: NewNS(t, "router"), lan: NewNS(t, "lan"), server: NewNS(t, "server")}
	for _, ns := range []*netns.NS{w.client, w.router, w.lan, w.server} {
		Must(t, ns.SetSysctls(
			netns.Setting{Key: "net.ipv4.ip_forward", Value: "1"},
			netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "1"},
			// A router whose link-local address is still tentative asks for no neighbour (ndisc_send_ns).
			netns.Setting{Key: "net.ipv6.conf.default.accept_dad", Value: "0"},
			netns.Setting{Key: "net.ipv4.conf.all.rp_filter", Value: "0"},
			netns.Setting{Key: "net.ipv4.conf.default.rp_filter", Value: "0"},
			netns.Setting{Key: "net.ipv4.icmp_ratelimit", Value: "0"},
			netns.Setting{Key: "net.ipv6.icmp.ratelimit", Value: "0"},
			netns.Setting{Key: "net.ipv4.icmp_msgs_per_sec", Value: "1000000", Optional: true},
		))
		Up(t, ns, "lo")
	}
	Must(t, w.lan.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	Up(t, w.lan, "br0")
	Veth(t, w.client, "eth0", w.router, "c0")
	Veth(t, w.router, "s0", w.lan, "r0")
	Veth(t, w.server, "eth0", w.lan, "s0")
	for _, port := range []string{"r0", "s0"} {
		Must(t, w.lan.Netlink().LinkSetMaster(Link(t, w.lan, port), Link(t, w.lan, "br0")))
	}
	for _, f := range families {
		length := 24
		if f.client.Is6() {
			length = 64
		}
		Address(t, w.client, "eth0", f.client, length)
		Address(t, w.router, "c0", f.gateway, length)
		Address(t, w.router, "s0", f.router, length)
		Address(t, w.server, "eth0", f.server, length)
		Address(t, w.server, "lo", f.alias, f.alias.BitLen())
		Route(t, w.client, anyAddr(f.client), 0, f.gateway)
		Route(t, w.server, anyAddr(f.client), 0, f.router)
		Route(t, w.router, f.alias, f.alias.BitLen(), f.server)
	}
	for ns, devices := range map[*netns.NS][]string{
		w.client: {"eth0"}, w.router: {"c0", "s0"}, w.server: {"eth0"}, w.lan: {"r0", "s0", "br0"},
	} {
		for _, d := range devices {
			Link(t, ns, d) // asking for one link makes the kernel handle its carrier now, not up to a second later
		}
	}
	for _, f := range families {
		// What the kernel does for a new IPv6 address, it does in the background: join the multicast group in which
		// neighbours ask for it, and make the route that says it is local.
		for _, to := range []netip.Addr{f.server, f.alias} {
			p := Probe{From: w.client, To: netip.AddrPortFrom(to, 9), Proto: "tcp"}
			for ctx, a := Within(t), (Answer{}); a.Outcome != Refused; {
				Must(t, ctx.Err())
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // before TCP tries again of itself
				a = p.Do(short)
				cancel()
			}
		}
	}
	return w
}

// counter reads a counter of /proc/net/snmp, like "Tcp", "RetransSegs".
func counter(t testing.TB, ns *netns.NS, group, name string) int {
	t.Helper()
	var data []byte
	Must(t, ns.Do(func() (err error) {
		data, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}))
	var names []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if fields[0] != group+":" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		value, err := strconv.Atoi(fields[slices.Index(names, name)])
		Must(t, err)
		return value
	}
	t.Fatalf("no counter %s %s", group, name)
	return 0
}

func serve(t testing.TB, ns *netns.NS, name string, addrs []netip.Addr, ports ...Port) *Server {
	t.Helper()
	s, err := Serve(ns, name, addrs, ports...)
	Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func eachFamilyAndProto(t *testing.T, f func(t *testing.T, fam family, proto string)) {
	for _, fam := range families {
		for _, proto := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprintf("%s/%s", fam.name, proto), func(t *testing.T) { f(t, fam, proto) })
		}
	}
}
