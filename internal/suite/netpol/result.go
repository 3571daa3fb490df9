// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"errors"
	"slices"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// Result returns the result of a case from what Judge returned, compared with the expectations for the case. Its Probed
// are the wrong cells.
func Result(verdicts []Verdict, err error, entries []expect.Entry) spec.Result {
	var r spec.Result
	comparison := expected.New(entries)
	verdicts = slices.Clone(verdicts)
	for i := range verdicts {
		verdicts[i].explain(comparison, &r)
	}
	var reason error
	if r.Verdict, reason = SumUp(verdicts, err); reason != nil {
		r.Reason = reason.Error()
	}
	outcomes := expected.Outcomes(r.Probed)
	if errors.As(err, new(*ApplyError)) {
		outcomes, r.NotReady = []string{expect.NotReady}, true
	}
	comparison.Compare(&r, outcomes)
	return r
}

// explain compares every cell of a table, adds the wrong ones to the result, and leaves those in Wrong that no
// expectation explains. A Lost cell says nothing about the enforcer, so no expectation explains it.
func (v *Verdict) explain(comparison *expected.Comparison, r *spec.Result) {
	wrong := v.Wrong
	v.Wrong, v.Verdict = nil, spec.Pass
	for i, mark := range v.Marks {
		label := v.label(i)
		comparison.Label(label)
		switch {
		case mark == Unprobed:
		case !slices.Contains(wrong, i):
			comparison.Row(label, v.Family, true, nil)
		case mark == Lost:
			if v.Wrong = append(v.Wrong, i); v.Verdict == spec.Pass {
				v.Verdict = spec.Broken
			}
		default:
			p := v.probed(i, label)
			if e := comparison.Row(label, v.Family, false, p.Outcomes); e != nil {
				p.Known = e.String()
			} else {
				v.Wrong, v.Verdict = append(v.Wrong, i), spec.Fail
			}
			r.Probed = append(r.Probed, p)
		}
	}
}

// label returns the label by which expectations name a cell: "x/a>y/b:80/TCP", or, through Services,
// "service/x/a>y/b:80/TCP".
func (v *Verdict) label(cell int) string {
	if v.Way == Services {
		return "service/" + CellAt(cell).String()
	}
	return CellAt(cell).String()
}

var outcomeOf = map[Mark]string{
	Open: "Reply", Wrong: "Reply", Dropped: "Silence", Arrived: "Silence", Refused: "Refused",
}

// probed describes a wrong cell.
func (v *Verdict) probed(cell int, label string) spec.Probed {
	want := Open
	if v.Want[cell] {
		want = Dropped
	}
	return spec.Probed{
		Row: label, Family: v.Family.String(), Outcomes: []string{outcomeOf[v.Marks[cell]]}, Probe: v.Title() + " " + label,
		Want: string(want), Got: string(v.Marks[cell]),
	}
}
