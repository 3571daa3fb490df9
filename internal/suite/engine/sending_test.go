// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// draw sends nothing: it notes the answers of servers as if probes of the row had got them, and a refusal where there
// is no server. It returns how many the row wanted in each of its volleys.
func draw(row spec.Row, server func(i int) string) (wanted []int) {
	s := &sending{prober: &prober{unwantedLimit: 3}, row: row}
	s.volleys(func() {
		before := len(s.seen)
		for s.take() {
			var o spec.Observation
			o.Outcome, o.Server = traffic.Reply, server(len(s.seen))
			if o.Server == "" {
				o.Outcome = traffic.Refused
			}
			s.note(o, nil)
		}
		wanted = append(wanted, len(s.seen)-before)
	})
	return wanted
}

// A row with Even goes on while its spread is suspicious, and ends when it is beyond doubt.
func TestHowManyProbesASpreadNeeds(t *testing.T) {
	two := spec.Row{Want: spec.Reply, Servers: []string{"a", "b"}, Even: true}
	inTurn := func(i int) string { return two.Servers[i%2] }
	oneInEight := func(i int) string { return two.Servers[i%16/14] }
	refusedFirst := func(i int) string { return []string{"", "a"}[min(i, 1)] }
	many, uneven, twenty := two, two, two
	many.Times, uneven.Times, uneven.Even, twenty.Times = 400, 400, false, 20
	for name, c := range map[string]struct {
		row    spec.Row
		server func(i int) string
		want   []int
	}{
		"one server alone":                  {many, func(int) string { return "a" }, []int{lane}},
		"both in turn":                      {many, inTurn, []int{400}},
		"no spread is wanted":               {uneven, func(int) string { return "a" }, []int{400}},
		"few probes, both in turn":          {two, inTurn, []int{14}},
		"few probes, one server alone":      {two, func(int) string { return "a" }, []int{14, 14, 14}},
		"chance makes a fair draw suspect":  {two, func(i int) string { return two.Servers[i/14] }, []int{14, 14}},
		"one in eight by the second server": {two, oneInEight, []int{14, 14, 14, 14}},
		"an outcome that is not wanted":     {twenty, refusedFirst, []int{20}},
	} {
		if got := draw(c.row, c.server); !slices.Equal(got, c.want) {
			t.Errorf("%s: volleys of %d probes, want %d", name, got, c.want)
		}
	}
}

// Clients that alternate at a Service with round robin would each reach a single endpoint.
func TestRowsWithEvenTakeTurns(t *testing.T) {
	web := spec.ClusterIPOf("web", 80)
	even := spec.Row{To: web, Even: true}
	probe := func(row spec.Row, from string, family lab.Family) *probed {
		row.From = from
		return &probed{row: row, label: from, family: family}
	}
	onN1, atN2 := even, even
	onN1.To, atN2.To = spec.NodePortAt("n1", "web", 80), spec.NodePortAt("n2", "web", 80)
	udp, port := even, even
	udp.Proto, port.To = "udp", spec.ClusterIPOf("web", 81)
	probes := []*probed{
		probe(even, "a/n1", lab.V4), probe(spec.Row{To: web}, "b/n1", lab.V4), probe(even, "c/n1", lab.V4),
		probe(even, "d/n2", lab.V4), probe(even, "e/n1", lab.V6), probe(udp, "f/n1", lab.V4),
		probe(port, "g/n1", lab.V4), probe(onN1, "h/n1", lab.V4), probe(onN1, "i/n2", lab.V4),
		probe(atN2, "j/n1", lab.V4), probe(even, "k/n1", lab.V4),
	}
	var got []string
	for _, turn := range turns(probes, func(r spec.Row) string {
		if r.To.Kind == spec.NodePortOf {
			return r.To.Host
		}
		return r.From[2:]
	}) {
		var names string
		for _, p := range turn {
			names += p.label[:1]
		}
		got = append(got, names)
	}
	want := []string{"achik", "b", "dj", "e", "f", "g"}
	if !slices.Equal(got, want) {
		t.Errorf("the groups are %q, want %q", got, want)
	}
}
