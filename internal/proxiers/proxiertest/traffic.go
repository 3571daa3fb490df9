// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Row is a probe and its expected outcome. The conformance suite judges proxiers; the few rows here show quickly which
// part of one is broken.
type Row struct {
	From    *netns.NS
	To      netip.AddrPort
	Outcome traffic.Outcome
	Servers []string   // that may answer
	Peer    netip.Addr // the client that the server must see; the zero Addr stands for any node
}

// Traffic sends packets of all kinds through worlds with either kind of pods. more, if not nil, are further rows of a
// family.
func Traffic(t *testing.T, p spec.Proxier, more func(*testing.T, *World, lab.Family) []Row) {
	for _, pods := range []lab.PodNetwork{lab.Bridge, lab.Routed} {
		t.Run(pods.String(), func(t *testing.T) {
			w := NewWorld(t, p, pods)
			w.Populate(t)
			w.Probe(t, w.Rows)
			if more != nil {
				w.Probe(t, func(f lab.Family) []Row { return more(t, w, f) })
			}
		})
	}
}

// Populate adds Services of several kinds, which Rows are about.
func (w *World) Populate(t *testing.T) {
	t.Helper()
	w.Apply(t, Service("web", 10, AsNodePort), "b1", "a2")
	w.Apply(t, Service("local", 11, AsLocal), "a2")
	w.Apply(t, Service("empty", 12, AsNodePort))
	w.Apply(t, Service("self", 13), "a1")
}

// Probe checks the rows of each family, by TCP and by UDP.
func (w *World) Probe(t *testing.T, rows func(lab.Family) []Row) {
	t.Helper()
	for _, f := range w.Stack().Families() {
		for _, proto := range []string{"tcp", "udp"} {
			for _, r := range rows(f) {
				w.Check(t, proto, r)
			}
		}
	}
}

// Rows are probes of the Services of Populate.
func (w *World) Rows(f lab.Family) []Row {
	a1, n1, n2, client := w.Pod("a1"), w.Node("n1"), w.Node("n2"), w.Client()
	web := []string{"b1", "a2"}
	rows := []Row{
		{a1.NS, VIP(f, 10), traffic.Reply, web, a1.Addr(f)},
		{n1.NS, VIP(f, 10), traffic.Reply, web, netip.Addr{}},
		{client.NS, w.NodePort("n1", f, 10), traffic.Reply, web, netip.Addr{}},
		{client.NS, w.NodePort("n2", f, 10), traffic.Reply, web, netip.Addr{}},
		{n1.NS, w.NodePort("n1", f, 10), traffic.Reply, web, netip.Addr{}},

		{client.NS, w.NodePort("n2", f, 11), traffic.Reply, []string{"a2"}, client.Addr(f)},
		{client.NS, w.NodePort("n1", f, 11), traffic.Silence, nil, netip.Addr{}},
		{a1.NS, VIP(f, 11), traffic.Reply, []string{"a2"}, a1.Addr(f)},
		{a1.NS, w.NodePort("n1", f, 11), traffic.Reply, []string{"a2"}, a1.Addr(f)},
		{n1.NS, w.NodePort("n1", f, 11), traffic.Reply, []string{"a2"}, netip.Addr{}},

		{a1.NS, VIP(f, 12), traffic.Refused, nil, netip.Addr{}},
		{n2.NS, VIP(f, 12), traffic.Refused, nil, netip.Addr{}},
		{client.NS, w.NodePort("n1", f, 12), traffic.Refused, nil, netip.Addr{}},

		{a1.NS, VIP(f, 13), traffic.Reply, []string{"a1"}, netip.Addr{}},
	}
	localhost := netip.MustParseAddrPort("127.0.0.1:30010")
	if f == lab.V6 {
		localhost = netip.MustParseAddrPort("[::1]:30010")
	} else if w.Proxier.Features()[spec.NodePortLocalhost] {
		return append(rows, Row{n1.NS, localhost, traffic.Reply, web, netip.Addr{}})
	}
	return append(rows, Row{n1.NS, localhost, traffic.Refused, nil, netip.Addr{}})
}

// Check sends a row's probe. If the proxier relays connections, the server must see a node.
func (w *World) Check(t *testing.T, proto string, r Row) {
	t.Helper()
	probe := traffic.Probe{From: r.From, To: r.To, Proto: proto,
		Fences: []netip.Addr{w.Node("n2").Addr(lab.FamilyOf(r.To.Addr()))}}
	if w.relays() {
		r.Peer = netip.Addr{}
		if r.Outcome == traffic.Reply {
			probe.Patience = 30 * time.Second // no fence tells how long a relay may take to answer
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := probe.Do(ctx)
	what := fmt.Sprintf("%s %s -> %s", proto, r.From.Name(), r.To)
	switch {
	case a.Fault != nil:
		t.Fatalf("%s: %v", what, a.Fault)
	case a.Outcome != r.Outcome:
		t.Errorf("%s: got %v (%s), want %v", what, a.Outcome, a.Detail, r.Outcome)
	case r.Outcome != traffic.Reply:
	case !slices.Contains(r.Servers, a.Greeting.Server):
		t.Errorf("%s: %s answered, want one of %v", what, a.Greeting.Server, r.Servers)
	case r.Peer.IsValid() && a.Greeting.Peer.Addr() != r.Peer:
		t.Errorf("%s: the server saw %s, want %s", what, a.Greeting.Peer, r.Peer)
	case !r.Peer.IsValid() && !w.isNode(t, a.Greeting.Peer.Addr()):
		t.Errorf("%s: the server saw %s, want a node", what, a.Greeting.Peer)
	}
}

func (w *World) relays() bool { return !w.Proxier.Features()[spec.KernelNAT] }

func (w *World) isNode(t *testing.T, a netip.Addr) bool {
	t.Helper()
	return slices.ContainsFunc(w.Nodes(), func(n *lab.Node) bool {
		local, err := n.LocalAddrs()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(local, a)
	})
}

// UDPFollowsEndpoints checks that a client which keeps its port follows changes of the endpoints.
func UDPFollowsEndpoints(t *testing.T, p spec.Proxier) {
	w := NewWorld(t, p, lab.Bridge)
	w.Apply(t, Service("web", 10, AsNodePort))
	source := netip.MustParseAddrPort("0.0.0.0:40000")
	for _, from := range []struct {
		ns *netns.NS
		to netip.AddrPort
	}{{w.Pod("a1").NS, VIP(lab.V4, 10)}, {w.Client().NS, w.NodePort("n1", lab.V4, 10)}} {
		for _, step := range []struct {
			pods    []string
			outcome traffic.Outcome
			server  string
		}{
			{nil, traffic.Refused, ""},
			{[]string{"b1"}, traffic.Reply, "b1"},
			{[]string{"b1", "a2"}, traffic.Reply, "b1"},
			{[]string{"a2"}, traffic.Reply, "a2"},
		} {
			w.Apply(t, Service("web", 10, AsNodePort), step.pods...)
			a := traffic.Probe{From: from.ns, Source: source, To: from.to, Proto: "udp"}.Do(t.Context())
			if a.Fault != nil || a.Outcome != step.outcome || a.Greeting.Server != step.server {
				t.Errorf("%s -> %s with endpoints %v: got %v %s (%v), want %v %s", from.ns.Name(), from.to, step.pods,
					a.Outcome, a.Greeting.Server, a.Fault, step.outcome, step.server)
			}
		}
	}
}

// RestartIsTransparent checks that connections survive a restart, and clients keep their endpoints.
func RestartIsTransparent(t *testing.T, p spec.Proxier) {
	w := NewWorld(t, p, lab.Bridge)
	w.Apply(t, Service("web", 10, AsSticky), "a1", "b1", "a2")
	for _, f := range w.Stack().Families() {
		probe := traffic.Probe{From: w.Pod("a1").NS, To: VIP(f, 10), Proto: "tcp"}
		conn, first := probe.Open(t.Context())
		if conn == nil {
			t.Fatalf("%s before: %v %v", f, first.Outcome, first.Fault)
		}
		defer func() { _ = conn.Close() }()
		for range 5 {
			w.Restart(t, 0)
			if a := conn.Exchange(t.Context()); a.Outcome != traffic.Reply {
				t.Fatalf("%s: the connection after a restart: %v %s", f, a.Outcome, a.Detail)
			}
			if a := probe.Do(t.Context()); a.Outcome != traffic.Reply || a.Greeting.Server != first.Greeting.Server {
				t.Fatalf("%s: a new connection after a restart: %v from %q, want one from %q", f, a.Outcome,
					a.Greeting.Server, first.Greeting.Server)
			}
		}
	}
}
