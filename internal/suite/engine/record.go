// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// record keeps the results of a scenario.
type record struct {
	stepName string // of the current step
	checked  bool   // a check of a step has judged

	mu          sync.Mutex
	probed      []spec.Probed // every row that was judged, for the report
	omittedRows []string      // rows that concern other proxiers
	remarks     []string      // printed with the verdict of a pass
	expected    *expected.Comparison
	failures    []failedRows // the rows that did not hold, for the evidence of a failure
	traces      []*rowTrace
	captures    []*observe.Capture // of the traces
	captured    []*observe.Capture // by the scenario itself
}

// probed is a row in one family with its observations.
type probed struct {
	row    spec.Row
	label  string
	family lab.Family
	seen   []spec.Observation
	fault  error
	wrong  []string
	known  bool // an expectation explains the failure
	number int  // in record.probed
	trace  *rowTrace
}

// judge judges rows and records them. It returns failedRows if a row fails unexpectedly, and a HarnessError if a row
// could not be probed.
func (r *record) judge(probes []*probed, facts spec.Facts, path func(*probed) []spec.Hop) error {
	var faults []error
	failed := false
	for _, p := range probes {
		if p.fault != nil {
			faults = append(faults, p.fault)
			continue
		}
		p.wrong = p.row.Judge(withoutWaits(p.seen), facts)
		r.add(p, facts, path(p))
		failed = failed || len(p.wrong) > 0 && !p.known
		for _, o := range p.seen {
			if choice := p.row.SeenAs.Choice(o); choice != "" {
				r.Note(choice)
			}
		}
		if p.row.Choice != "" {
			r.Note(p.row.Choice + ": " + strings.Join(p.outcomes(false), ", "))
		}
	}
	if len(faults) > 0 {
		return &spec.HarnessError{Err: errors.Join(faults...)}
	}
	if !failed {
		return nil
	}
	f := failedRows{probes: probes, facts: facts}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, f)
	return f
}

func (r *record) add(p *probed, facts spec.Facts, path []spec.Hop) {
	entry := spec.Probed{
		Step: r.stepName, Row: p.label, Family: p.family.String(), Probe: p.row.Probe(p.family),
		Want: p.row.Wants(), Got: p.got(facts), Holds: len(p.wrong) == 0, Path: path,
	}
	if !entry.Holds {
		entry.Outcomes = p.outcomes(true)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.expected.Row(entry.Row, p.family, entry.Holds, entry.Outcomes); e != nil {
		p.known, entry.Known = true, e.String()
	}
	p.number = len(r.probed)
	r.probed = append(r.probed, entry)
}

// empty reports whether rows were omitted and nothing else was judged.
func (r *record) empty() bool { return len(r.omittedRows) > 0 && len(r.probed) == 0 && !r.checked }

// name records the label of a row, whether or not the row applies to this proxier and cluster.
func (r *record) name(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected.Label(label)
}

// omit records a row, or evidence of it, that does not apply to this proxier: it applies only with or only without a
// feature.
func (r *record) omit(what string, with, without spec.Feature) {
	why := "only without " + string(without)
	if with != "" {
		why = "only with " + string(with)
	}
	text := fmt.Sprintf("%s (%s)", what, why)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.omittedRows, text) {
		r.omittedRows = append(r.omittedRows, text)
	}
}

// Note implements spec.World. It keeps each text once: families mostly agree.
func (r *record) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.remarks, text) {
		r.remarks = append(r.remarks, text)
	}
}

// outcomes returns the distinct outcomes. With unwanted it returns only those that the row does not allow, or all if
// the row allows them all and failed for another reason.
func (p *probed) outcomes(unwanted bool) []string {
	var texts []string
	for _, o := range p.seen {
		if unwanted && p.row.Want.Allows(o.Outcome) {
			continue
		}
		if text := o.Outcome.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if unwanted && len(texts) == 0 {
		return p.outcomes(false)
	}
	return texts
}

// got describes the observations. That of a single probe without an answer says how the silence was proved.
func (p *probed) got(facts spec.Facts) string {
	if len(p.seen) == 1 {
		return p.describe(p.seen, facts)
	}
	return p.describe(withoutWaits(p.seen), facts)
}

// describe describes observations, and adds the mismatches that the description does not show, and how many probes were
// not sent because the row had failed.
func (p *probed) describe(seen []spec.Observation, facts spec.Facts) string {
	got := p.row.Got(seen, facts)
	shown := func(wrong string) bool {
		outcome, isOutcome := strings.CutPrefix(wrong, "got ")
		return isOutcome && (strings.Contains(got, outcome) || outcome == traffic.Silence.String())
	}
	if extra := strings.Join(slices.DeleteFunc(slices.Clone(p.wrong), shown), "; "); extra != "" {
		got += ": " + extra
	}
	if of := p.row.Count(); len(seen) < of && len(p.wrong) > 0 {
		got += fmt.Sprintf(" (ended after %d of %d)", len(seen), of)
	}
	return got
}

// decisive returns the first unwanted observation, or the first one if none is unwanted.
func (p *probed) decisive() *spec.Observation {
	if len(p.seen) == 0 {
		return nil
	}
	i := slices.IndexFunc(p.seen, func(o spec.Observation) bool { return !p.row.Want.Allows(o.Outcome) })
	return &p.seen[max(i, 0)]
}
