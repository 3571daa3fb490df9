// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// listed returns what nft prints of a namespace.
func listed(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command("nft", "-y", "list", "ruleset")
	cmd.Stdout = &out
	Must(t, ns.Run(cmd))
	return out.String()
}

func rulesOfRouter(t *testing.T) func(ns *netns.NS) (*ruleset.Ruleset, error) {
	return func(ns *netns.NS) (*ruleset.Ruleset, error) { return ruleset.Read(t.Context(), ns) }
}

func TestProbesOutliveAFlushAndEndWithTheTrace(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	router := NewNS(t, "router")
	Must(t, router.Run(exec.Command("nft", "add table ip other")))
	var sources []netip.Addr
	for a := netip.MustParseAddr("10.0.0.1"); len(sources) < 40; a = a.Next() {
		sources = append(sources, a)
	}
	for _, proto := range []string{"tcp", "udp", "sctp", "icmp"} {
		for _, family := range []string{ruleset.IP, ruleset.IP6} {
			s := Select{Proto: proto, Reply: true}
			if family == ruleset.IP {
				s.Sources = sources
			}
			tracer, err := Start(t.Context(), []*netns.NS{router}, nil, family, s, rulesOfRouter(t))
			Must(t, err)
			if read, err := ruleset.Read(t.Context(), router); err != nil || len(read.Tables) < 2 {
				t.Errorf("the rules during a trace: %+v, %v", read, err)
			}
			before := listed(t, router)
			Must(t, router.Run(exec.Command("nft", "flush ruleset")))
			want := before[:strings.Index(before, "table ip other")] + before[strings.Index(before, "table "+family+" viplab-trace"):]
			if got := listed(t, router); got != want || !strings.Contains(want, "table bridge viplab-trace") {
				t.Errorf("%s: after a flush\n%s\nwant\n%s", proto, got, want)
			}
			Must(t, tracer.End(t.Context()))
			if got := listed(t, router); got != "" {
				t.Errorf("%s: after the trace\n%s", proto, got)
			}
			Must(t, router.Run(exec.Command("nft", "add table ip other")))
		}
	}
}

// Rules that ask for the state of a connection would make the kernel track connections.
func TestATraceDoesNotMakeANodeTrackConnections(t *testing.T) {
	for _, command := range []string{"iptables-nft", "nft"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skip(err)
		}
	}
	client, router := NewNS(t, "client"), NewNS(t, "router")
	Veth(t, client, "eth0", router, "eth0")
	address(t, client, "10.0.1.2/24")
	address(t, router, "10.0.1.1/24")
	Must(t, router.Run(exec.Command("iptables-nft", "-A", "INPUT", "-p", "tcp", "-j", "DROP")))
	tracer, err := Start(t.Context(), []*netns.NS{router}, []*netns.NS{client}, ruleset.IP, Select{Proto: "tcp"},
		rulesOfRouter(t))
	Must(t, err)
	source, to := netip.MustParseAddrPort("10.0.1.2:4000"), netip.MustParseAddrPort("10.0.1.1:80")
	dial(t, client, router, source, to)
	Must(t, tracer.End(t.Context()))
	w, err := tracer.Walk("client", "tcp", source, to)
	Must(t, err)
	for _, s := range w.Steps {
		if s.Before.State != "" || s.After != nil {
			t.Errorf("the state of a connection that nothing tracks: %+v", s)
		}
	}
	table, err := observe.NewConntrack(router)
	Must(t, err)
	defer table.Close()
	if flows, err := table.Flows(t.Context(), nil); err != nil || len(flows) > 0 || len(w.Steps) == 0 {
		t.Errorf("entries: %v, %v; steps %+v", flows, err, w.Steps)
	}
}
