// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"fmt"
	"reflect"

	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
)

// Faults are those that enforcers are to be judged with: every wrong reading that they can be given, and what they may
// write wrongly. A reading must be noticed by the first few cases whose table is another one if policies are read so,
// and by each case that no reading before it has been set to.
func Faults(cases []Case) ([]faults.Fault, error) {
	var all []faults.Fault
	set := map[string]bool{}
	for _, r := range misread.Given() {
		f := faults.Fault{Name: r.Name, Breaks: "Policies are taken for what they are not."}
		for _, c := range cases {
			if set[c.ID] && len(f.Scenarios) >= 3 {
				continue
			}
			told, err := Tells(c, r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.ID, err)
			}
			if told {
				f.Scenarios, set[c.ID] = append(f.Scenarios, c.ID), true
			}
		}
		all = append(all, f)
	}
	return append(all, faults.Enforced...), nil
}

// Tells says whether the IPv4 table of a case is another one if its policies are read so.
func Tells(c Case, r misread.Reading) (bool, error) {
	right, err := c.judge(lab.IPv4)
	if err != nil {
		return false, err
	}
	pods := *right
	pods.Policies = nil
	wrong := c
	wrong.Policies = r.Policies(&pods, translated(c.Policies, lab.IPv4))
	if reflect.DeepEqual(wrong.Policies, c.Policies) {
		return false, nil
	}
	read, err := wrong.judge(lab.IPv4)
	if err != nil {
		return false, err
	}
	return tableOf(read, lab.V4) != tableOf(right, lab.V4), nil
}

// Prove judges some cases on enforcers that get what a reading takes policies for; nil is the right reading.
func (b *Bench) Prove(ctx context.Context, cases []Case, reading *misread.Reading) (out prove.Outcome, err error) {
	for _, c := range cases {
		verdicts, err := b.JudgeMisread(ctx, c, reading)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		result := report.Result{Scenario: c.ID, Proxier: b.enforcer.Name(), Priority: c.Priority}
		if result.Verdict, err = SumUp(verdicts, err); err != nil {
			result.Reason = err.Error()
		}
		if refused := Refusal(result); refused != "" {
			out.Refused = append(out.Refused, refused)
		}
		out.Results = append(out.Results, result)
		out.Touched++
	}
	return out, nil
}
