// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
)

func TestSource(t *testing.T) {
	w := newWorld(t)
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.client, "self", []netip.Addr{f.client}, Port{proto, 8080})
		for _, source := range []netip.AddrPort{
			netip.AddrPortFrom(f.client, 0), netip.AddrPortFrom(f.client, 1234), netip.AddrPortFrom(netip.Addr{}, 1235),
		} {
			p := Probe{From: w.client, Source: source, To: netip.AddrPortFrom(f.client, 8080), Proto: proto}
			for range 2 { // the port is free again at once
				a := p.Do(Within(t))
				if a.Outcome != Reply || a.Peer != a.Source || source.Port() != 0 && a.Source.Port() != source.Port() {
					t.Errorf("from %s: %v, source %s", source, a, a.Source)
				}
			}
		}
	})
}

func TestPortsAreNotUsedAgainSoon(t *testing.T) {
	w := newWorld(t)
	serve(t, w.server, "web", nil, bothPorts...)
	seen := map[uint16]bool{}
	for range 200 {
		a := Probe{From: w.client, To: netip.AddrPortFrom(families[0].server, 80), Proto: "udp"}.Do(Within(t))
		if a.Outcome != Reply || seen[a.Source.Port()] {
			t.Fatalf("%v from %s", a, a.Source)
		}
		seen[a.Source.Port()] = true
	}
}

// A wildcard server answers from the address it was asked at.
func TestWildcard(t *testing.T) {
	w := newWorld(t)
	serve(t, w.server, "any", nil, Port{"tcp", 7000}, Port{"udp", 7000})
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		for _, to := range []netip.Addr{f.server, f.alias} {
			p := Probe{From: w.client, To: netip.AddrPortFrom(to, 7000), Proto: proto, Fences: []netip.Addr{f.gateway}}
			if a := p.Do(Within(t)); a.Outcome != Reply || a.Local != p.To {
				t.Error(a)
			}
		}
	})
}

func TestPayload(t *testing.T) {
	w := newWorld(t)
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		sizes := []int{1, 1400, 9000, 60000}
		if proto == "tcp" {
			sizes = append(sizes, 5<<20)
		}
		for _, size := range sizes {
			p := Probe{
				From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto,
				Fences: []netip.Addr{f.gateway}, Payload: size,
			}
			c, a := p.Open(Within(t))
			if a.Outcome != Reply || a.Payload != size {
				t.Fatalf("%d bytes: %v", size, a)
			}
			if a = c.Exchange(Within(t)); a.Outcome != Reply || a.Serial < 2 {
				t.Errorf("%d bytes again: %v", size, a)
			}
			c.Close()
		}
	})
}

// A persistent connection meets a network that changes under it.
func TestConnSurvivesSilence(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.router, "table inet filter { set closed { type inet_service; }; chain forward { type filter hook forward "+
		"priority 0; th dport @closed drop; }; }")
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto, Fences: []netip.Addr{f.gateway}}
		c, a := p.Open(Within(t))
		if a.Outcome != Reply {
			t.Fatal(a)
		}
		defer c.Close()
		NFT(t, w.router, "add element inet filter closed { 80 }")
		if a := c.Exchange(Within(t)); a.Outcome != Silence || !strings.Contains(a.Detail, "fenced") {
			t.Errorf("closed: %v", a)
		}
		NFT(t, w.router, "flush set inet filter closed")
		c.probe.Fences = nil // TCP retransmits at its own pace
		if a := c.Exchange(Within(t)); a.Outcome != Reply || a.Server != "web" {
			t.Errorf("open again: %v", a)
		}
	})
}

// A flow that is refused for a long time gets the answer when there is one: the kernel keeps ICMP errors in the memory
// of the socket that holds answers, too. The payload is more than the room that errors leave.
func TestErrorsLeaveRoomForTheAnswer(t *testing.T) {
	w := newWorld(t)
	Must(t, w.server.SetSysctls( // no limit for "port unreachable"
		netns.Setting{Key: "net.ipv4.icmp_ratemask", Value: "0"},
		netns.Setting{Key: "net.ipv6.icmp.ratemask", Value: "2"},
	))
	for _, f := range families {
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "udp", Keep: true,
			Payload: 1200, Fences: []netip.Addr{f.gateway}}
		c, a := p.Open(Within(t))
		if a.Outcome != Refused {
			t.Fatal(a)
		}
		for n := range 2000 {
			if a := c.Exchange(Within(t)); a.Outcome != Refused {
				t.Fatalf("%s, request %d: %v", f.name, n, a)
			}
		}
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		if a := c.Exchange(Within(t)); a.Outcome != Reply {
			t.Errorf("%s, after 2000 errors: %v", f.name, a)
		}
		Must(t, c.Close())
	}
}

func TestConnEnds(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		for _, proto := range []string{"tcp", "udp"} {
			s := serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
			p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto, Fences: []netip.Addr{f.gateway}}
			c, a := p.Open(Within(t))
			if a.Outcome != Reply || c.RemoteAddr() != p.To {
				t.Fatal(a)
			}
			Must(t, s.Close())
			want := Reset
			if proto == "udp" {
				want = Refused
			}
			if a := c.Exchange(Within(t)); a.Outcome != want {
				t.Errorf("%s, server closed: %v", proto, a)
			}
			Must(t, c.Close())
			if a := c.Exchange(Within(t)); !errors.Is(a.Fault, os.ErrClosed) {
				t.Errorf("%s, client closed: %v", proto, a)
			}
		}
	}
}

// stranger listens with the standard library and calls do with every TCP connection.
func stranger(t *testing.T, w *world, at netip.AddrPort, do func(net.Conn)) {
	l, err := w.server.Listen(context.Background(), "tcp", at.String())
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
		}
	}()
}

func TestStrangers(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "bystander", []netip.Addr{f.server}, Port{"tcp", 80})
		hang := netip.AddrPortFrom(f.server, 1000)
		held := make(chan net.Conn, 10)
		stranger(t, w, hang, func(c net.Conn) { held <- c })
		end := netip.AddrPortFrom(f.server, 1001)
		stranger(t, w, end, func(c net.Conn) { bufio.NewReader(c).ReadString('\n'); c.Close() })
		talk := netip.AddrPortFrom(f.server, 1002)
		stranger(t, w, talk, func(c net.Conn) { fmt.Fprintln(c, "220 ready"); held <- c })

		for _, row := range []struct {
			to     netip.AddrPort
			want   Outcome
			detail string
		}{
			{end, Reset, "closed by FIN without an answer"},
			{talk, Garbled, `"220 ready" is not a greeting`},
			{hang, Silence, "connected; "},
		} {
			p := Probe{From: w.client, To: row.to, Proto: "tcp", Fences: []netip.Addr{f.gateway}}
			if row.to != hang {
				p.Patience = time.Minute // a process of its own: a fence cannot tell when it is done
			}
			if a := p.Do(Within(t)); a.Outcome != row.want || !strings.HasPrefix(a.Detail, row.detail) {
				t.Errorf("%s: %v", row.to, a)
			}
		}
	}
}

// Who is patient hears an answer that comes after the silence was proved.
func TestPatience(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		late := netip.AddrPortFrom(f.server, 1000)
		stranger(t, w, late, func(c net.Conn) {
			line, _ := bufio.NewReader(c).ReadString('\n')
			r, _ := parseRequest([]byte(line))
			c.Write(Greeting{Server: "late", Nonce: r.nonce}.line())
		})
		p := Probe{From: w.client, To: late, Proto: "tcp", Fences: []netip.Addr{f.gateway}, Patience: time.Minute}
		if a := p.Do(Within(t)); a.Outcome != Reply || a.Server != "late" {
			t.Error(a)
		}
		p.IfAccepted = true
		if a := p.Do(Within(t)); a.Outcome != Reply || a.Server != "late" {
			t.Errorf("whoever waits for those who accept: %v", a)
		}
		NFT(t, w.router, "table inet filter { chain forward { type filter hook forward priority 0; th dport 81 drop; }; }")
		p.To = netip.AddrPortFrom(f.server, 81)
		if a := p.Do(Within(t)); a.Outcome != Silence || a.Took >= p.Patience {
			t.Errorf("where nobody accepts there is nothing to wait for: %v", a)
		}
		p.IfAccepted = false
		p.To, p.Patience = netip.AddrPortFrom(f.server, 81), 10*time.Millisecond
		if a := p.Do(Within(t)); a.Outcome != Silence || a.Took < p.Patience ||
			!strings.Contains(a.Detail, "and then no answer") {
			t.Error(a)
		}
	}
}

func TestNotFenced(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.router, "table inet filter { chain forward { type filter hook forward priority 0; th dport 81 drop; }; }")
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 81), Proto: proto}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if a := p.Do(ctx); a.Outcome != Silence || !strings.HasSuffix(a.Detail, "not fenced") {
			t.Error(a)
		}
		cancel()
		if a := p.Do(ctx); a.Outcome != Silence && !errors.Is(a.Fault, context.Canceled) {
			t.Error(a)
		}
		p.To = netip.AddrPortFrom(f.server, 80)
		if a := p.Do(Within(t)); a.Outcome != Reply {
			t.Error(a)
		}
	})
}

// While a process has no server, fences prove the silence of UDP only if the probe excludes servers of other processes.
func TestSilenceWithoutServers(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.router, "table inet filter { chain forward { type filter hook forward priority 0; th dport 81 drop; }; }")
	for _, f := range families {
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 81), Proto: "udp", Fences: []netip.Addr{f.server}}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if a := p.Do(ctx); a.Outcome != Silence || !strings.HasSuffix(a.Detail, "not fenced") {
			t.Error(a)
		}
		cancel()
		p.OwnServers = true
		if a := p.Do(Within(t)); a.Outcome != Silence || !strings.HasPrefix(a.Detail, "fenced by") {
			t.Error(a)
		}
	}
}

// What is wrong with the probe is a fault and no outcome.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.router, "table inet filter { chain forward { type filter hook forward priority 0; th dport 81 drop; }; }")
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	f := families[0]
	to := netip.AddrPortFrom(f.server, 81)
	for name, row := range map[string]struct {
		p    Probe
		want error
	}{
		"no port":        {Probe{To: netip.AddrPortFrom(f.server, 0), Proto: "tcp"}, nil},
		"protocol":       {Probe{To: to, Proto: "sctp"}, nil},
		"fence's family": {Probe{To: to, Proto: "tcp", Fences: []netip.Addr{families[1].gateway}}, nil},
		"source not ours": {Probe{To: to, Proto: "tcp", Source: netip.AddrPortFrom(addr("10.9.9.9"), 0)},
			unix.EADDRNOTAVAIL},
		"fence is silent":  {Probe{To: to, Proto: "tcp", Fences: []netip.Addr{f.nobody}}, context.DeadlineExceeded},
		"datagram too big": {Probe{To: to, Proto: "udp", Payload: 70000}, unix.EMSGSIZE},
	} {
		row.p.From = w.client
		a := row.p.Do(short)
		if a.Fault == nil || a.Outcome != 0 || row.want != nil && !errors.Is(a.Fault, row.want) {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// The sender's own namespace refuses.
func TestLocalRefusals(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.client, `table inet filter { chain output { type filter hook output priority 0;
		th dport 1 drop; th dport 2 reject; tcp dport 3 reject with tcp reset; }; }`)
	for _, f := range families {
		Must(t, w.client.Run(ipCommand(f, "route add prohibit "+f.alias.String())))
	}
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		for _, row := range []struct {
			to   netip.AddrPort
			want Outcome
		}{
			{netip.AddrPortFrom(f.server, 1), Silence},
			{netip.AddrPortFrom(f.server, 2), Refused},
			{netip.AddrPortFrom(f.server, 3), Refused},
			{netip.AddrPortFrom(f.alias, 80), Unreachable},
		} {
			p := Probe{From: w.client, To: row.to, Proto: proto, Fences: []netip.Addr{f.gateway}}
			if a := p.Do(Within(t)); a.Outcome != row.want {
				t.Errorf("%s: %v", row.to, a)
			}
		}
	})
}

// A translator that forgets the packet inside an ICMP error must not be taken at its word.
func TestStrayICMP(t *testing.T) {
	w := newWorld(t)
	f := families[0]
	serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
	// The router rewrites destinations without a state, so the error of the closed port is not translated back.
	NFT(t, w.router, fmt.Sprintf(`table ip raw { chain prerouting { type filter hook prerouting priority -300;
		ip daddr 10.0.7.7 ip daddr set %s; }; }`, f.server))
	p := Probe{From: w.client, To: netip.MustParseAddrPort("10.0.7.7:82"), Proto: "udp", Fences: []netip.Addr{f.gateway}}
	a := p.Do(Within(t))
	want := fmt.Sprintf("ICMP port unreachable from %s quotes %s -> %s:82 instead of our packet", f.server, a.Source,
		f.server)
	if a.Outcome != Silence || !strings.HasSuffix(a.Detail, want) {
		t.Errorf("got %v, want %s", a, want)
	}
}
