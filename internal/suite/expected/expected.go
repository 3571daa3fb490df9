// SPDX-License-Identifier: Apache-2.0

// Package expected compares what has failed with the known deviations of a program (package expect).
package expected

import (
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// Comparison compares a scenario with the expectations that apply to it. It is not safe for concurrent use.
type Comparison struct {
	entries []expect.Entry
	failed  []bool     // whether a row of the entry has failed as expected
	held    [][]string // the rows of the entry that held
	unused  [][]string // the patterns of the entry that are like no row so far
}

// New returns the comparison of a scenario with its expectations.
func New(entries []expect.Entry) *Comparison {
	x := &Comparison{entries: entries, failed: make([]bool, len(entries)), held: make([][]string, len(entries))}
	for _, e := range entries {
		x.unused = append(x.unused, slices.Clone(e.Rows))
	}
	return x
}

// Label records that the scenario has a row with the label, whether or not it concerns the program and the cluster.
func (x *Comparison) Label(label string) {
	for i, patterns := range x.unused {
		x.unused[i] = slices.DeleteFunc(patterns, func(p string) bool { return expect.Matches(p, label) })
	}
}

// Row records a row and returns the entry that expects its failure, or nil if the row holds or fails in another way.
func (x *Comparison) Row(label string, f lab.Family, holds bool, outcomes []string) *expect.Entry {
	for i, e := range x.entries {
		switch {
		case !e.Concerns(label, f):
		case holds:
			x.held[i] = append(x.held[i], fmt.Sprintf("%s %s", label, f))
		case e.Expects(outcomes...):
			x.failed[i] = true
			return &e
		}
	}
	return nil
}

// Surprise begins the reason of a scenario that does not fail as expected.
const Surprise = "UNEXPECTED: "

// Compare turns an expected failure into a known deviation, and an unexpected pass into a failure. The outcomes are the
// unwanted ones of the scenario as a whole.
func (x *Comparison) Compare(r *spec.Result, outcomes []string) {
	var surprises []string
	surprise := func(e expect.Entry, format string, args ...any) {
		surprises = append(surprises, fmt.Sprintf(format, args...)+", although it is expected to fail: "+e.String())
	}
	for i, e := range x.entries {
		switch {
		case e.ForWholeScenario() && r.Verdict == spec.Fail && e.Expects(outcomes...):
			r.Verdict, r.Known = spec.Known, append(r.Known, e.String())
		case e.ForWholeScenario() && r.Verdict == spec.Pass && !e.MayHold():
			surprise(e, "the scenario passes")
		case e.ForWholeScenario() || r.Verdict != spec.Pass:
		case len(x.held[i]) > 0 && !e.MayHold():
			surprise(e, "what holds is %s", strings.Join(x.held[i], ", "))
		case len(x.unused[i]) > 0 && e.Scenario != expect.Generated:
			surprise(e, "no row has a label like %s", strings.Join(x.unused[i], ", "))
		case x.failed[i]:
			r.Known = append(r.Known, e.String())
		}
	}
	switch {
	case len(surprises) > 0:
		r.Verdict, r.Reason = spec.Fail, Surprise+strings.Join(surprises, "\n")+
			"\nRemove the expectation, or narrow its versions or rows."
	case r.Verdict == spec.Pass && len(r.Known) > 0:
		r.Verdict = spec.Known
	}
}

// Outcomes returns the unwanted outcomes of the rows that no expectation explains.
func Outcomes(probed []spec.Probed) []string {
	var out []string
	for _, p := range probed {
		if !p.Holds && p.Known == "" {
			out = append(out, p.Outcomes...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
