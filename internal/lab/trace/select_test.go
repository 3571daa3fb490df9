// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"os/exec"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// Two clients send at the same time. Only the rules that one of them meets are recorded.
func TestPacketsFromOtherSourcesAreNotTraced(t *testing.T) {
	for _, command := range []string{"iptables-nft", "nft"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skip(err)
		}
	}
	client, router := NewNS(t, "client"), NewNS(t, "router")
	Veth(t, client, "eth0", router, "eth0")
	for _, cidr := range []string{"10.0.1.2/24", "10.0.1.3/24"} {
		address(t, client, cidr)
	}
	address(t, router, "10.0.1.1/24")
	Must(t, router.Run(exec.Command("iptables-nft", "-A", "INPUT", "-j", "ACCEPT")))
	server, err := traffic.Serve(router, "router", nil, traffic.Port{Proto: "udp", Number: 80})
	Must(t, err)
	defer server.Close()
	mine, other := netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.1.3")
	tracer, err := Start(t.Context(), []*netns.NS{router}, []*netns.NS{client}, ruleset.IP,
		Select{Proto: "udp", Sources: []netip.Addr{mine}},
		func(ns *netns.NS) (*ruleset.Ruleset, error) { return ruleset.Read(t.Context(), ns) })
	Must(t, err)
	probe := traffic.Probe{From: client, To: netip.MustParseAddrPort("10.0.1.1:80"), Proto: "udp"}
	met := map[netip.AddrPort]bool{}
	for _, from := range []netip.Addr{other, mine, other} {
		probe.Source = netip.AddrPortFrom(from, 0)
		answer := probe.Do(Within(t))
		if answer.Outcome != traffic.Reply {
			t.Fatal(answer)
		}
		met[answer.Source] = from == mine
	}
	Must(t, tracer.End(t.Context()))
	for source, want := range met {
		w, err := tracer.Walk("client", "udp", source, probe.To)
		Must(t, err)
		rules := 0
		for _, s := range w.Steps {
			if s.Rule != "" {
				rules++
			}
		}
		if got := rules > 0; got != want || len(w.Steps) == 0 {
			t.Errorf("a packet from %s has %d steps, %d of them rules; want rules: %t", source, len(w.Steps), rules, want)
		}
	}
}
