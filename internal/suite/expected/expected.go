// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// expected compares a scenario with the expectations that apply to it. It is protected by the lock of record.
type expected struct {
	entries []expect.Entry
	failed  []bool     // whether a row of the entry has failed as expected
	held    [][]string // the rows of the entry that held
}

func newExpected(entries []expect.Entry) *expected {
	return &expected{entries: entries, failed: make([]bool, len(entries)), held: make([][]string, len(entries))}
}

// row records a row and returns the entry that expects its failure, or nil if the row holds or fails in another way.
func (x *expected) row(label string, f lab.Family, holds bool, outcomes []string) *expect.Entry {
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

// knownLimit lowers applyLimit for a program that is expected not to converge. A program that can converge does so at
// once.
const knownLimit = 15 * time.Second

// notReadyExpected reports whether an entry expects that the program does not converge.
func notReadyExpected(entries []expect.Entry) bool {
	return slices.ContainsFunc(entries, func(e expect.Entry) bool {
		return e.ForWholeScenario() && e.Got == expect.NotReady
	})
}

// notReadyError is the error of a program that does not converge.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// compare turns an expected failure into a known deviation, and an unexpected pass into a failure.
func (x *expected) compare(r *spec.Result, err error) {
	var surprises []string
	surprise := func(e expect.Entry, format string, args ...any) {
		surprises = append(surprises, fmt.Sprintf(format, args...)+", although it is expected to fail: "+e.String())
	}
	for i, e := range x.entries {
		switch {
		case e.ForWholeScenario() && r.Verdict == spec.Fail && e.Expects(outcomesOf(r, err)...):
			r.Verdict, r.Known = spec.Known, append(r.Known, e.String())
		case e.ForWholeScenario() && r.Verdict == spec.Pass && !e.Flaky:
			surprise(e, "the scenario passes")
		case e.ForWholeScenario() || r.Verdict != spec.Pass:
		case len(x.held[i]) > 0 && !e.Flaky:
			surprise(e, "what holds is %s", strings.Join(x.held[i], ", "))
		case x.failed[i]:
			r.Known = append(r.Known, e.String())
		case len(x.held[i]) == 0:
			surprise(e, "no row has a label like %s", strings.Join(e.Rows, ", "))
		}
	}
	switch {
	case len(surprises) > 0:
		r.Verdict, r.Reason = spec.Fail, "UNEXPECTED: "+strings.Join(surprises, "\n")+
			"\nRemove the expectation, or narrow its versions or rows."
	case r.Verdict == spec.Pass && len(r.Known) > 0:
		r.Verdict = spec.Known
	}
}

// outcomesOf returns the outcomes of the rows that do not hold, or NotReady.
func outcomesOf(r *spec.Result, err error) []string {
	if errors.As(err, new(notReadyError)) {
		return []string{expect.NotReady}
	}
	var out []string
	for _, p := range r.Probed {
		if !p.Holds && p.Known == "" {
			out = append(out, p.Outcomes...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
