// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// record keeps what a scenario showed.
type record struct {
	stepName string // of the step that is played

	mu       sync.Mutex
	probed   []spec.Probed // every row that was judged, for the report
	remarks  []string      // printed with the verdict of a pass
	failures []failedRows  // what did not hold, for the evidence of a failure
}

// probed is a row in one family and what was seen of it.
type probed struct {
	row    spec.Row
	family lab.Family
	seen   []spec.Observation
	fault  error
	wrong  []string
}

// judge judges rows and records them. The error is of type failedRows if one does not hold, and a HarnessError if one
// could not be probed.
func (r *record) judge(probes []*probed, facts spec.Facts, path func(*probed) []spec.Hop) error {
	var faults []error
	failed := false
	for _, p := range probes {
		if p.fault != nil {
			faults = append(faults, p.fault)
			continue
		}
		p.wrong = p.row.Judge(p.seen, facts)
		failed = failed || len(p.wrong) > 0
		r.add(spec.Probed{
			Step: r.stepName, Probe: p.row.Probe(p.family), Want: p.row.Wants(), Got: p.got(facts), Holds: len(p.wrong) == 0,
			Path: path(p),
		})
		if p.row.Choice != "" {
			r.Note(p.row.Choice + ": " + p.outcomes())
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

func (r *record) add(p spec.Probed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed = append(r.probed, p)
}

// Note implements spec.World. It keeps each text once: families mostly agree.
func (r *record) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.remarks, text) {
		r.remarks = append(r.remarks, text)
	}
}

// outcomes names each outcome that was seen once.
func (p *probed) outcomes() string {
	var texts []string
	for _, o := range p.seen {
		if text := o.Outcome.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// got describes what was seen, and what is wrong about it where the description does not show that.
func (p *probed) got(facts spec.Facts) string {
	got := p.row.Got(p.seen, facts)
	if extra := strings.Join(p.wrong, "; "); extra != "" && !strings.Contains("got "+got, extra) {
		got += ": " + extra
	}
	return got
}

// decisive returns the first observation that is not as wanted, or the first of all.
func (p *probed) decisive() *spec.Observation {
	if len(p.seen) == 0 {
		return nil
	}
	i := slices.IndexFunc(p.seen, func(o spec.Observation) bool { return !p.row.Want.Allows(o.Outcome) })
	return &p.seen[max(i, 0)]
}
