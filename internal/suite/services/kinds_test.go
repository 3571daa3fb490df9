// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Words of spec tell kinds of wrong answers apart.
func TestMismatchesAreInTheWordsOfRows(t *testing.T) {
	a := netip.MustParseAddrPort("10.0.0.1:1")
	reply := spec.Observation{Answer: traffic.Answer{Outcome: traffic.Reply, Source: a}}
	reply.Server, reply.Local = "a1", a
	moved := reply
	moved.Server = "a2"
	silent := spec.Observation{Answer: traffic.Answer{Outcome: traffic.Silence}, Strays: []string{"a1"}}
	both := spec.Row{Want: spec.Reply, Servers: []string{"a1", "a2"}}
	even, sticky, port, seen := both, both, both, both
	even.Even, sticky.Sticky, port.Port, seen.SeenAs = true, true, 9, spec.ClientAddr()
	var said []string
	for _, x := range []struct {
		row  spec.Row
		seen []spec.Observation
	}{
		{spec.Row{Want: spec.Silence}, []spec.Observation{silent}},
		{port, []spec.Observation{reply}},
		{seen, []spec.Observation{reply}},
		{even, slices.Repeat([]spec.Observation{reply}, 200)},
		{sticky, []spec.Observation{reply, moved}},
		{spec.Row{Want: spec.Reply, Servers: []string{"a1"}}, []spec.Observation{moved}},
	} {
		said = append(said, x.row.Judge(x.seen, spec.Facts{})...)
	}
	for _, words := range mismatches {
		if !strings.Contains(strings.Join(said, "\n"), words) {
			t.Errorf("no row says %q, but\n%s", words, strings.Join(said, "\n"))
		}
	}
}

func TestKindsOfFailures(t *testing.T) {
	fails := func(rows ...spec.Probed) spec.Result { return spec.Result{Verdict: spec.Fail, Probed: rows} }
	silent := spec.Probed{Row: "external-local/node/nodeport/udp#2", Outcomes: []string{"Silence"}, Got: "Silence"}
	held := spec.Probed{Row: "affinity/pod/clusterip", Holds: true}
	known := spec.Probed{Row: "flow-ends/pod/gone/udp", Outcomes: []string{"Reply"}, Known: "known"}
	moved := spec.Probed{Row: "affinity/pod/clusterip", Outcomes: []string{"Reply"},
		Got: "a1 ×2, a2 ×1: not one server but several answered: a1 ×2, a2 ×1"}
	for _, c := range []struct {
		result spec.Result
		want   []string
	}{
		{fails(silent, held, known, silent), []string{"external-local udp Silence"}},
		{fails(moved), []string{"affinity not one server"}},
		{fails(held), []string{notReady}},
		{spec.Result{Verdict: spec.Pass, Probed: []spec.Probed{held}}, nil},
		{spec.Result{Verdict: spec.Broken}, nil},
	} {
		if got := kindsOf(c.result); !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
