// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

var (
	clientEnd = netip.MustParseAddrPort("192.168.7.201:40000")
	nodeEnd   = netip.MustParseAddrPort("10.244.1.1:40001")
	vip       = netip.MustParseAddrPort("10.96.0.1:80")
	podEnd    = netip.MustParseAddrPort("10.244.1.2:8080")
	facts     = Facts{
		Names: map[netip.Addr]string{
			clientEnd.Addr(): "client", nodeEnd.Addr(): "n1", podEnd.Addr(): "a1",
			netip.MustParseAddr("192.168.7.11"): "n1",
		},
		Nodes:  []string{"n1"},
		Egress: func(string, netip.Addr) netip.Addr { return nodeEnd.Addr() },
	}
)

// answered is a reply by a1, which saw the peer.
func answered(peer netip.AddrPort, tracked ...observe.Flow) Observation {
	o := Observation{
		Family: lab.V4, To: vip,
		Answer: traffic.Answer{
			Outcome: traffic.Reply, Source: clientEnd,
			Greeting: traffic.Greeting{Server: "a1", Peer: peer, Local: podEnd},
		},
	}
	for _, f := range tracked {
		o.Flow = &f
	}
	return o
}

func unanswered(o traffic.Outcome) Observation {
	return Observation{Family: lab.V4, To: vip, Answer: traffic.Answer{Outcome: o, Source: clientEnd}}
}

// half are so many answers and so many silences.
func half(answers, silences int) []Observation {
	return append(slices.Repeat([]Observation{answered(clientEnd)}, answers),
		slices.Repeat([]Observation{unanswered(traffic.Silence)}, silences)...)
}

func flow(replyTo netip.AddrPort) observe.Flow {
	return observe.Flow{
		Proto: "tcp", Orig: observe.Tuple{Src: clientEnd, Dst: vip}, Reply: observe.Tuple{Src: podEnd, Dst: replyTo},
	}
}

func TestJudge(t *testing.T) {
	by := []string{"a1"}
	tracked := flow(clientEnd)
	marked := flow(clientEnd)
	marked.Mark = 0x4000
	elsewhere := flow(clientEnd)
	elsewhere.Reply.Src = netip.MustParseAddrPort("10.244.9.9:8080")
	strayed := unanswered(traffic.Silence)
	strayed.Strays = []string{"a2"}
	other := answered(clientEnd)
	other.Server = "b1"
	moved := answered(clientEnd)
	moved.First = "b1"

	for name, c := range map[string]struct {
		row  Row
		seen []Observation
		want string // part of the complaint; empty: none
	}{
		"reply as wanted":                 {Row{Servers: by}, []Observation{answered(clientEnd)}, ""},
		"silence where a reply is wanted": {Row{Servers: by}, []Observation{unanswered(traffic.Silence)}, "got Silence"},
		"refused where silence is wanted": {Row{Want: Silence}, []Observation{unanswered(traffic.Refused)},
			"got Refused"},
		"reply where nothing must be served": {Row{Want: NotServed}, []Observation{answered(clientEnd)},
			"got Reply by a1"},
		"any refusal where not served is fine": {Row{Want: NotServed}, []Observation{unanswered(traffic.Unreachable)}, ""},
		"a server heard it all the same":       {Row{Want: Silence}, []Observation{strayed}, "a2 received it"},
		"an answer got lost amid a change": {Row{Servers: []string{"a2"}, Want: Reply | NotServed}, []Observation{strayed},
			""},
		"amid a change another server heard it": {Row{Servers: by, Want: Reply | NotServed}, []Observation{strayed},
			"a2 received it"},
		"the wrong server":                   {Row{Servers: by}, []Observation{other}, "answered by b1"},
		"a kept connection moved":            {Row{Servers: by, Conn: "x"}, []Observation{moved}, "opened to b1"},
		"a kept connection that was to move": {Row{Servers: by, Conn: "x", MayMove: true}, []Observation{moved}, ""},
		"moved, but not to whom it was to": {Row{Servers: by, Conn: "x", MayMove: true}, []Observation{other},
			"answered by b1"},
		"half is not answered, as is right": {Row{Servers: by, Want: Reply | Silence, Even: true}, half(30, 30), ""},
		"too little is not answered":        {Row{Servers: by, Want: Reply | Silence, Even: true}, half(55, 5), "nobody ×5"},
		"the wrong port": {Row{Servers: by, Port: 9090}, []Observation{answered(clientEnd)},
			"accepted on port 8080"},
		"source kept": {Row{Servers: by, SeenAs: ClientAddr()}, []Observation{answered(clientEnd)}, ""},
		"source rewritten": {Row{Servers: by, SeenAs: ClientAddr()}, []Observation{answered(nodeEnd)},
			"a1 saw n1"},
		"source port rewritten": {Row{Servers: by, SeenAs: ClientAddr()},
			[]Observation{answered(netip.AddrPortFrom(clientEnd.Addr(), 1))}, "a1 saw client"},
		"seen as the node": {Row{Servers: by, SeenAs: NodeAddr("n1")}, []Observation{answered(nodeEnd)}, ""},
		"seen as the client, not the node": {Row{Servers: by, SeenAs: NodeAddr("n1")}, []Observation{answered(clientEnd)},
			"a1 saw client"},
		"seen as the egress interface": {Row{Servers: by, SeenAs: EgressOf("n1")}, []Observation{answered(nodeEnd)}, ""},
		"another address of the same node": {Row{Servers: by, SeenAs: EgressOf("n1")},
			[]Observation{answered(netip.MustParseAddrPort("192.168.7.11:1"))}, "a1 saw n1"},
		"hairpin seen as the node": {Row{From: "a1", Servers: by, SeenAs: ClientAddrUnlessHairpin()},
			[]Observation{answered(nodeEnd)}, ""},
		"hairpin seen as itself": {Row{From: "a1", Servers: by, SeenAs: ClientAddrUnlessHairpin()},
			[]Observation{answered(clientEnd)}, ""},
		"the client, where a node is right as well": {Row{Servers: by, SeenAs: ClientAddrOrNode()},
			[]Observation{answered(clientEnd)}, ""},
		"a node, where the client is right as well": {Row{Servers: by, SeenAs: ClientAddrOrNode()},
			[]Observation{answered(nodeEnd)}, ""},
		"neither the client nor a node": {Row{Servers: by, SeenAs: ClientAddrOrNode()},
			[]Observation{answered(netip.MustParseAddrPort("203.0.113.99:1"))}, "a1 saw 203.0.113.99"},
		"no hairpin, but masqueraded": {Row{From: "c1", Servers: by, SeenAs: ClientAddrUnlessHairpin()},
			[]Observation{answered(nodeEnd)}, "a1 saw n1"},
		"flow as wanted": {Row{Servers: by, Flow: TranslatedOn("n1")},
			[]Observation{answered(clientEnd, flow(clientEnd))}, ""},
		"no flow": {Row{Servers: by, Flow: TranslatedOn("n1")}, []Observation{answered(clientEnd)},
			"no conntrack entry"},
		"flow with SNAT that must have none": {Row{Servers: by, Flow: TranslatedOn("n1")},
			[]Observation{answered(clientEnd, flow(nodeEnd))}, "rewrites its source"},
		"flow without SNAT that must have it": {Row{Servers: by, Flow: MasqueradedOn("n1")},
			[]Observation{answered(clientEnd, flow(clientEnd))}, "does not rewrite its source"},
		"flow with SNAT as wanted": {Row{Servers: by, Flow: MasqueradedOn("n1")},
			[]Observation{answered(nodeEnd, flow(nodeEnd))}, ""},
		"flow to another backend": {Row{Servers: by, Flow: TranslatedOn("n1")},
			[]Observation{answered(clientEnd, elsewhere)}, "10.244.9.9"},
		"flow with a mark left on it": {Row{Servers: by, Flow: TranslatedOn("n1")},
			[]Observation{answered(clientEnd, marked)}, "mark 0x4000"},
		"no flow, as wanted": {Row{Servers: by, Flow: UntrackedOn("n1")}, []Observation{answered(clientEnd)}, ""},
		"flow where there must be none": {Row{Servers: by, Flow: UntrackedOn("n1")},
			[]Observation{answered(clientEnd, flow(clientEnd))}, "n1 tracks it"},
		"refused, and no flow": {Row{Want: Refused, Flow: UntrackedOn("n1")},
			[]Observation{{Answer: traffic.Answer{Outcome: traffic.Refused}}}, ""},
		"refused, but tracked": {Row{Want: Refused, Flow: UntrackedOn("n1")},
			[]Observation{{Answer: traffic.Answer{Outcome: traffic.Refused}, Flow: &tracked}}, "n1 tracks it"},
		"sticky": {Row{Servers: []string{"a1", "b1"}, Sticky: true},
			[]Observation{answered(clientEnd), answered(clientEnd)}, ""},
		"not sticky": {Row{Servers: []string{"a1", "b1"}, Sticky: true},
			[]Observation{answered(clientEnd), other}, "several answered"},
		"one bad connection among many is told": {Row{Servers: by, Times: 3},
			[]Observation{answered(clientEnd), unanswered(traffic.Reset), answered(clientEnd)}, "got Reset"},
	} {
		got := strings.Join(c.row.Judge(c.seen, facts), "; ")
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s: complaint %q, want %q", name, got, c.want)
		}
	}
}

func TestScenariosThatProveNothingAreRefused(t *testing.T) {
	good := func() Scenario {
		return Scenario{
			ID: "group-name", Group: "group", Why: "why", Priority: P0, Source: "source",
			Steps: []Step{{Rows: []Row{{From: "a1", To: ClusterIPOf("web", 80), Servers: []string{"a1"}}}}},
		}
	}
	if err := good().Validate(); err != nil {
		t.Fatalf("a good scenario is refused: %v", err)
	}
	for want, spoil := range map[string]func(*Scenario){
		"the id must be":        func(s *Scenario) { s.ID = "Group.Name" },
		"must be given":         func(s *Scenario) { s.Why = "" },
		"no steps":              func(s *Scenario) { s.Steps = nil },
		"step 1 proves nothing": func(s *Scenario) { s.Steps[0].Rows = nil },
		"unknown feature":       func(s *Scenario) { s.Needs = []Feature{"warp-drive"} },
		"does not say by whom":  func(s *Scenario) { s.Steps[0].Rows[0].Servers = nil },
		"judges an answer":      func(s *Scenario) { s.Steps[0].Rows[0].Want = Silence },
		"24 connections are too few to judge the spread over 3": func(s *Scenario) {
			r := &s.Steps[0].Rows[0]
			r.Even, r.Times, r.Servers = true, 24, []string{"a1", "a2", "a3"}
		},
		"unknown protocol": func(s *Scenario) { s.Steps[0].Rows[0].Proto = "icmp" },
		"no sender":        func(s *Scenario) { s.Steps[0].Rows[0].From = "" },
		"too few to judge the spread over 2": func(s *Scenario) {
			r := &s.Steps[0].Rows[0]
			r.Even, r.Times, r.Want = true, 13, Reply|Refused
		},
		"a choice needs at least two outcomes": func(s *Scenario) { s.Steps[0].Rows[0].Choice = "whether it answers" },
		"only a kept connection":               func(s *Scenario) { s.Steps[0].Rows[0].MayMove = true },
		`unknown feature "warp-gate"`:          func(s *Scenario) { s.Steps[0].Rows[0].Unless = "warp-gate" },
	} {
		s := good()
		spoil(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := Sort([]Scenario{good(), good()}); err == nil || !strings.Contains(err.Error(), "written twice") {
		t.Errorf("a scenario written twice: got %v", err)
	}
}

func TestRowsAreForThoseWhomTheyConcern(t *testing.T) {
	for _, c := range []struct {
		row  Row
		want [2]bool
	}{{Row{}, [2]bool{true, true}}, {Row{If: Topology}, [2]bool{true, false}},
		{Row{Unless: Topology}, [2]bool{false, true}}} {
		got := [2]bool{c.row.Concerns(Features(Topology)), c.row.Concerns(Features(NodePort))}
		if got != c.want {
			t.Errorf("If %q, Unless %q: concerns who has it and who has not: %v, want %v", c.row.If, c.row.Unless, got, c.want)
		}
	}
}
