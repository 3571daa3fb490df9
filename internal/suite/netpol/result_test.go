// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// tablesWith returns the tables of both families, in which every cell wants an answer and has one, but for those of
// IPv4 with another mark.
func tablesWith(marks map[Cell]Mark) []Verdict {
	var out []Verdict
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		v := Verdict{Family: f}
		for i := range v.Marks {
			v.Marks[i] = Open
			if mark, other := marks[CellAt(i)]; other && f == lab.V4 {
				v.Marks[i] = mark
			}
		}
		v.Wrong, v.Verdict = judge(&v.Want, &v.Marks)
		out = append(out, v)
	}
	return out
}

func TestExpectationsExplainCells(t *testing.T) {
	ab, ac := Cell{From: 0, To: 1}, Cell{From: 0, To: 2}
	const rowsOfAB = "x/a>x/b:80/TCP"
	entry := func(change func(*expect.Entry)) expect.Entry {
		e := expect.Entry{Scenario: "c", Issue: "none", Reason: "it is so"}
		change(&e)
		return e
	}
	whole := entry(func(*expect.Entry) {})
	row := entry(func(e *expect.Entry) { e.Rows, e.Families, e.Got = []string{rowsOfAB}, []int{4}, "Silence" })
	refused := &ApplyError{Err: errors.New("no such set")}
	for name, c := range map[string]struct {
		verdicts []Verdict
		err      error
		entries  []expect.Entry
		want     spec.Verdict
		reason   string
	}{
		"no entry":         {tablesWith(map[Cell]Mark{ab: Dropped}), nil, nil, spec.Fail, rowsOfAB},
		"the whole case":   {tablesWith(map[Cell]Mark{ab: Dropped}), nil, []expect.Entry{whole}, spec.Known, rowsOfAB},
		"the cell":         {tablesWith(map[Cell]Mark{ab: Dropped}), nil, []expect.Entry{row}, spec.Known, ""},
		"another outcome":  {tablesWith(map[Cell]Mark{ab: Refused}), nil, []expect.Entry{row}, spec.Fail, rowsOfAB},
		"another cell too": {tablesWith(map[Cell]Mark{ab: Dropped, ac: Dropped}), nil, []expect.Entry{row}, spec.Fail, "x/a>x/c"},
		"no evidence":      {tablesWith(map[Cell]Mark{ab: Lost}), nil, []expect.Entry{whole}, spec.Broken, rowsOfAB},
		"the case passes":  {tablesWith(nil), nil, []expect.Entry{whole}, spec.Fail, "UNEXPECTED: the scenario passes"},
		"the cell holds":   {tablesWith(nil), nil, []expect.Entry{row}, spec.Fail, "UNEXPECTED: what holds is " + rowsOfAB},
		"one family holds": {tablesWith(map[Cell]Mark{ab: Dropped}), nil, []expect.Entry{
			entry(func(e *expect.Entry) { e.Rows = []string{rowsOfAB} })}, spec.Fail, rowsOfAB + " v6"},
		"no such cell": {tablesWith(nil), nil, []expect.Entry{
			entry(func(e *expect.Entry) { e.Rows = []string{"x/a>x/d:*"} })}, spec.Fail, "no row has a label like x/a>x/d:*"},
		"it may be flaky": {tablesWith(nil), nil, []expect.Entry{
			entry(func(e *expect.Entry) { e.Rows, e.Flaky = []string{rowsOfAB}, true })}, spec.Pass, ""},
		"it is not ready": {nil, refused, []expect.Entry{
			entry(func(e *expect.Entry) { e.Got = expect.NotReady })}, spec.Known, "no such set"},
		"the harness": {nil, errors.New("out of memory"), []expect.Entry{whole}, spec.Broken, "out of memory"},
	} {
		r := Result(c.verdicts, c.err, c.entries)
		if r.Verdict != c.want || !strings.Contains(r.Reason, c.reason) || (c.reason == "") != (r.Reason == "") {
			t.Errorf("%s: %s, want %s\n%s", name, r.Verdict, c.want, r.Reason)
		}
	}
	services := tablesWith(map[Cell]Mark{ab: Arrived})
	services[0].Way = Services
	r := Result(services, nil, nil)
	if len(r.Probed) != 1 || r.Probed[0].Row != "service/"+rowsOfAB || !slices.Equal(r.Probed[0].Outcomes, []string{"Silence"}) {
		t.Errorf("%+v", r.Probed)
	}
}
