// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
)

var bothPorts = []Port{{"tcp", 80}, {"udp", 80}, {"tcp", 81}, {"udp", 81}}

func TestReply(t *testing.T) {
	w := newWorld(t)
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		s := serve(t, w.server, "web", []netip.Addr{f.server, f.alias}, bothPorts...)
		for _, to := range []netip.Addr{f.server, f.alias} {
			p := Probe{From: w.client, To: netip.AddrPortFrom(to, 81), Proto: proto, Fences: []netip.Addr{f.gateway}}
			a := p.Do(Within(t))
			g := a.Greeting
			if a.Outcome != Reply || g.Server != "web" || g.Local != p.To || g.Peer != a.Source || a.Source.Addr() != f.client {
				t.Fatalf("%+v", a)
			}
			seen := s.Arrivals()
			if last := seen[len(seen)-1]; last.Nonce != g.Nonce || last.Peer != a.Source || last.Proto != proto {
				t.Errorf("log says %+v, client %+v", last, a)
			}
		}
	})
}

// A probe that says too little is a fault of its own, not a crash.
func TestIncompleteProbe(t *testing.T) {
	w := newWorld(t)
	to := netip.AddrPortFrom(families[0].server, 80)
	for want, p := range map[string]Probe{
		"want a namespace":           {To: to, Proto: "tcp"},
		"want an address and a port": {From: w.client, Proto: "tcp"},
		"protocol":                   {From: w.client, To: to},
	} {
		if a := p.Do(Within(t)); a.Outcome != 0 || a.Fault == nil || !strings.Contains(a.Fault.Error(), want) {
			t.Errorf("%v, want a fault that says %q", a, want)
		}
	}
}

// Low ports are those that the kernel would give to a masqueraded connection from a port like them, and to no other.
func TestLow(t *testing.T) {
	w := newWorld(t)
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		former := uint16(0)
		for range 3 {
			p := Probe{From: w.client, PrivilegedPort: true, To: netip.AddrPortFrom(f.server, 81), Proto: proto,
				Fences: []netip.Addr{f.gateway}}
			a := p.Do(Within(t))
			if port := a.Greeting.Peer.Port(); a.Outcome != Reply || port != a.Source.Port() || port < 600 || port > 1023 ||
				port == former {
				t.Fatalf("%+v, after one from port %d", a, former)
			}
			former = a.Source.Port()
		}
	})
}

// What the router does to the packets to a port, and what the client must make of it.
func TestOutcomes(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
	}
	NFT(t, w.router, `
		table inet filter {
			chain forward {
				type filter hook forward priority 0;
				meta l4proto { tcp, udp } th dport vmap { 1: goto port, 2: drop, 3: goto admin, 4: goto host, 5: goto rst }
				meta l4proto { tcp, udp } th sport 81 drop
			}
			chain port { reject with icmpx type port-unreachable; }
			chain admin { reject with icmpx type admin-prohibited; }
			chain host { reject with icmpx type host-unreachable; }
			chain rst { tcp flags syn reject with tcp reset; drop; }
		}`)
	rows := []struct {
		port    uint16
		proto   string // both if empty
		outcome Outcome
		detail4 string
		detail6 string
	}{
		{port: 1, outcome: Refused, detail4: "ICMP port unreachable from 10.0.1.1",
			detail6: "ICMP port unreachable from fd00:1::1"},
		{port: 2, outcome: Silence, detail4: "fenced by ", detail6: "fenced by "},
		{port: 3, outcome: Unreachable, detail4: "ICMP admin prohibited from 10.0.1.1",
			detail6: "ICMP admin prohibited from fd00:1::1"},
		{port: 4, outcome: Unreachable, detail4: "ICMP host unreachable from 10.0.1.1",
			detail6: "ICMP address unreachable from fd00:1::1"},
		{port: 5, proto: "tcp", outcome: Refused, detail4: "RST", detail6: "RST"},
		{port: 6, proto: "tcp", outcome: Refused, detail4: "RST", detail6: "RST"},
		{port: 6, proto: "udp", outcome: Refused, detail4: "ICMP port unreachable from 10.0.2.2",
			detail6: "ICMP port unreachable from fd00:2::2"},
		{port: 80, outcome: Reply},
		{port: 81, proto: "udp", outcome: Silence, detail4: "web has seen it from 10.0.1.2:",
			detail6: "web has seen it from [fd00:1::2]:"},
		{port: 81, proto: "tcp", outcome: Silence, detail4: "fenced by ", detail6: "fenced by "},
	}
	again := counter(t, w.client, "Tcp", "RetransSegs")
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		for _, row := range rows {
			if row.proto != "" && row.proto != proto {
				continue
			}
			t.Run(fmt.Sprint(row.port), func(t *testing.T) {
				p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, row.port), Proto: proto,
					Fences: []netip.Addr{f.gateway}}
				a := p.Do(Within(t))
				detail := row.detail4
				if f.server.Is6() {
					detail = row.detail6
				}
				if a.Outcome != row.outcome || !strings.HasPrefix(a.Detail, detail) {
					t.Errorf("got %v, want %v: %s", a, row.outcome, detail)
				}
			})
		}
	})
	if n := counter(t, w.client, "Tcp", "RetransSegs") - again; n != 0 {
		t.Errorf("%d SYNs had to be sent again: ICMP errors were missed", n)
	}
}

// The client of a single exchange sends three segments, and a server that delays acknowledgements two. Those of a
// connection that goes on acknowledge at once. A delayed acknowledgement waits for 40 ms at least, which a busy machine
// may need.
func TestSegments(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		server := serve(t, w.server, "web", []netip.Addr{f.server}, Port{"tcp", 80}, Port{"udp", 80})
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "tcp", Fences: []netip.Addr{f.gateway}}
		least := func(single bool) (byClient, byServer int) {
			byClient, byServer = math.MaxInt, math.MaxInt
			for range 10 {
				client, server := segments(t, w.client), segments(t, w.server)
				p.Single = single
				c, a := p.Open(Within(t))
				if a.Outcome != Reply {
					t.Fatalf("%s: %v", f.name, a)
				}
				Must(t, c.Close())
				byClient = min(byClient, segments(t, w.client)-client)
				byServer = min(byServer, segments(t, w.server)-server)
			}
			return byClient, byServer
		}
		if c, s := least(false); c < 5 || s < 3 {
			t.Errorf("%s: of a connection that goes on the client sends %d segments and the server %d, not 5 and 3",
				f.name, c, s)
		}
		if c, s := least(true); c != 3 || s != 3 {
			t.Errorf("%s: of a single exchange the client sends %d segments, not SYN, request and RST, and the "+
				"server %d, not SYN, acknowledgement and answer", f.name, c, s)
		}
		Must(t, server.DelayAcks())
		if c, s := least(true); c != 3 || s != 2 {
			t.Errorf("%s: with delayed acknowledgements the client sends %d segments, not 3, and the server %d, not 2",
				f.name, c, s)
		}
	}
}

// segments returns how many TCP segments a namespace has sent.
func segments(t *testing.T, ns *netns.NS) (sent int) {
	t.Helper()
	Must(t, ns.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		names, values := []string(nil), []string(nil)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Tcp:") {
				names, values = values, strings.Fields(line)
			}
		}
		sent, err = strconv.Atoi(values[slices.Index(names, "OutSegs")])
		return err
	}))
	return sent
}
