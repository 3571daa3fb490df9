// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

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
