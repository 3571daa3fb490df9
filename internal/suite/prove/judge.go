// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// judge returns the verdict of a trial, given the scenarios that had to notice the fault. idle is the verdict if the
// fault has changed nothing.
func (t *Trial) judge(o Outcome, named []string, idle Verdict, err error) {
	var broken []string
	for _, r := range o.Results {
		switch isNamed := slices.Contains(named, r.Scenario); {
		case r.Verdict == spec.Fail && isNamed:
			t.Caught = append(t.Caught, r.Scenario)
		case r.Verdict == spec.Fail:
			t.Also = append(t.Also, r.Scenario)
		case r.Verdict == spec.Pass && isNamed:
			t.Missed = append(t.Missed, r.Scenario)
		case r.Verdict != spec.Pass:
			broken = append(broken, fmt.Sprintf("%s is %s: %s", r.Scenario, r.Verdict, firstLine(r.Reason)))
		}
	}
	switch {
	case err != nil:
		t.Verdict, t.Reason = Broken, err.Error()
	case len(o.Refused) > 0:
		t.Verdict, t.Reason = Broken, "the proxier cannot work with it, so no scenario noticed it: "+
			firstLine(o.Refused[0])
	case len(broken) > 0:
		t.Verdict, t.Reason = Broken, strings.Join(broken, "; ")
	case o.Touched == 0:
		t.Verdict, t.Reason, t.Caught = idle, "it has changed nothing", nil
		if t.Missed = named; idle == Foreign {
			t.Missed = nil
		}
	case len(t.Missed) > 0:
		t.Verdict = Survived
	case len(t.Caught) < len(named):
		t.Verdict = Broken
		t.Reason = fmt.Sprintf("%d of %d scenarios have no result", len(named)-len(t.Caught), len(named))
	default:
		t.Verdict = Caught
	}
}

// Judged returns how many trials have a result, and how many there are together with those that were not run.
func (p *Proof) Judged() (judged, all int) {
	return judgedOf(p.Trials, func(t Trial) Verdict { return t.Verdict })
}

// judgedOf counts the items that have a result, and those together with the ones that were not run. It leaves out those
// that do not apply.
func judgedOf[T any](items []T, verdict func(T) Verdict) (judged, all int) {
	for _, item := range items {
		switch verdict(item) {
		case Foreign:
		case NotRun:
			all++
		default:
			judged, all = judged+1, all+1
		}
	}
	return judged, all
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// Proof is the result for all scenarios and faults.
type Proof struct {
	Version   string     `json:"version"`
	Kernel    string     `json:"kernel"`
	Controls  []Trial    `json:"controls"`
	Trials    []Trial    `json:"trials"`
	Scenarios []Scenario `json:"scenarios"`

	options Options
	faults  []faults.Fault             // the selected ones
	ids     []string                   // of the selected scenarios
	control []map[string]report.Result // by proxier, then scenario

	mu   sync.Mutex
	done int // how many controls and trials have ended
}

// Scenario is the result for one scenario.
type Scenario struct {
	ID    string   `json:"id"`
	State Standing `json:"standing"`
	// By lists the faults that the scenario has caught, each with the proxiers that it was injected into.
	By []string `json:"by"`
	// Reason is why the scenario is immune, or which faults it has missed.
	Reason string `json:"reason,omitempty"`
}

// Standing is the summary of a scenario's result.
type Standing string

// The standings of a scenario.
const (
	Proved    Standing = "proved"    // it has caught every fault that names it, and one at least
	Missing   Standing = "missing"   // it has passed on a fault that names it
	Unclaimed Standing = "unclaimed" // no fault names it
	IsImmune  Standing = "immune"    // no fault can make it fail
	Untried   Standing = "untried"   // no fault that names it could be tried on these proxiers
	Pending   Standing = "not run"   // the run was interrupted before all faults that name it were tried
)

func (p *Proof) standing(id string) Scenario {
	s := Scenario{ID: id, By: []string{}}
	var missed []string
	pending := false
	for _, f := range p.faults {
		var in []string
		for _, t := range p.Trials {
			switch {
			case t.Fault != f.Name || t.Verdict == Broken || t.Verdict == Foreign:
			case t.Verdict == NotRun:
				pending = pending || slices.Contains(f.Scenarios, id)
			case slices.Contains(t.Caught, id):
				in = append(in, t.Proxier)
			case slices.Contains(t.Missed, id):
				missed = append(missed, f.Name+" in "+t.Proxier)
			}
		}
		if len(in) > 0 {
			s.By = append(s.By, fmt.Sprintf("%s (%s)", f.Name, strings.Join(in, ", ")))
		}
	}
	switch {
	case len(missed) > 0:
		s.State, s.Reason = Missing, "passes on "+strings.Join(missed, ", ")
	case pending:
		s.State = Pending
	case len(s.By) > 0:
		s.State = Proved
	case p.options.Immune[id] != "":
		s.State, s.Reason = IsImmune, p.options.Immune[id]
	case slices.ContainsFunc(p.options.Faults, func(f faults.Fault) bool { return slices.Contains(f.Scenarios, id) }):
		s.State = Untried
	default:
		s.State = Unclaimed
	}
	return s
}

// ExitCode returns the exit code for the proof: 0 if every fault that was tried was caught and a fault names every
// scenario, 1 if a fault survived or no fault names a scenario, 2 if something was broken or not run, or nothing was
// tried.
func (p *Proof) ExitCode() int {
	has := func(trials []Trial, v Verdict) bool {
		return slices.ContainsFunc(trials, func(t Trial) bool { return t.Verdict == v })
	}
	unclaimed := func(s Scenario) bool { return s.State == Unclaimed }
	switch {
	case has(p.Trials, Survived):
		return 1
	case has(p.Controls, Broken), has(p.Trials, Broken), has(p.Trials, NotRun):
		return 2
	case p.options.Only == nil && slices.ContainsFunc(p.Scenarios, unclaimed):
		return 1
	case has(p.Trials, Caught):
		return 0
	}
	return 2
}
