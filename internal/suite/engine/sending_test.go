// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// draw sends nothing: it notes the answers of servers as if probes of the row had got them, and returns how many the
// row wanted.
func draw(row spec.Row, server func(i int) string) int {
	s := &sending{prober: &prober{unwantedLimit: 3}, row: row, left: row.Count()}
	n := 0
	for s.take() {
		var o spec.Observation
		o.Outcome, o.Server = traffic.Reply, server(n)
		s.note(o, nil)
		n++
	}
	return n
}

func TestARowEndsWhenItsSpreadIsBeyondDoubt(t *testing.T) {
	row := spec.Row{Want: spec.Reply, Servers: []string{"a", "b"}, Even: true, Times: 400}
	for name, c := range map[string]struct {
		server func(i int) string
		want   int
	}{
		"one server alone": {func(int) string { return "a" }, lane},
		"both in turn":     {func(i int) string { return row.Servers[i%2] }, 400},
	} {
		if n := draw(row, c.server); n != c.want {
			t.Errorf("%s: %d probes, want %d", name, n, c.want)
		}
	}
	row.Even = false
	if n := draw(row, func(int) string { return "a" }); n != 400 {
		t.Errorf("a row that wants no spread: %d probes, want 400", n)
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
