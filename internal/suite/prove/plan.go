// SPDX-License-Identifier: Apache-2.0

// Package prove shows that scenarios can fail. It has a Runner run them on proxiers with and without an injected fault,
// and judges which scenarios noticed the fault.
package prove

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Job is a run of scenarios on one proxier.
type Job struct {
	Fault     string // empty for the control
	Proxier   string
	Scenarios []string
}

// Outcome is the result of a job.
type Outcome struct {
	Results []report.Result `json:"results"`
	// Touched is the number of times that the fault took effect.
	Touched int `json:"touched"`
	// Refused lists the states to which the proxier did not converge.
	Refused []string `json:"refused"`
}

// Runner runs a job. It may be called concurrently.
type Runner func(context.Context, Job) (Outcome, error)

// Options select the faults and scenarios to prove.
type Options struct {
	Faults    []faults.Fault
	Immune    map[string]string // why no fault can make a scenario fail, by its id
	Scenarios []spec.Scenario
	Proxiers  []string
	// Outside is the one of the proxiers that is a command of --exec. It is empty if there is none.
	Outside string
	// Stack is that of the clusters. The zero value is IPv4 alone.
	Stack lab.Stack
	// Focus limits the scenarios, and the faults to those that name one of them. Only limits the faults, and the
	// scenarios to those that one of them names. Nil means all.
	Focus, Only *regexp.Regexp
	// Everything runs all scenarios of Focus with each fault of Only, and shows which others fail besides the named
	// ones.
	Everything bool
	// Parallel is the number of jobs that run concurrently.
	Parallel int
	// Listen, if not nil, is called for each trial that has ended.
	Listen func(done, of int, t Trial)

	Run Runner
}

// Select returns the faults and the ids of the scenarios that the options choose. An empty choice is an error.
func (o Options) Select() ([]faults.Fault, []string, error) {
	var ids []string
	for _, s := range o.Scenarios {
		if o.Focus == nil || o.Focus.MatchString(s.ID) {
			ids = append(ids, s.ID)
		}
	}
	var chosen []faults.Fault
	var named []string
	for _, f := range o.Faults {
		hits := intersection(f.Scenarios, ids)
		if o.Only != nil && !o.Only.MatchString(f.Name) || len(hits) == 0 && o.Focus != nil && !o.Everything {
			continue
		}
		chosen, named = append(chosen, f), append(named, hits...)
	}
	if o.Only != nil && !o.Everything {
		ids = named
	}
	if len(chosen) == 0 && o.Only == nil && len(ids) > 0 {
		return nil, nil, fmt.Errorf("no fault names %s: nothing would be proved (the row of a scenario "+
			"names its faults: viplab scenario show)", strings.Join(ids, ", "))
	}
	if len(ids) == 0 || len(chosen) == 0 {
		return nil, nil, errors.New("no fault or no scenario matches: nothing would be proved " +
			"(viplab prove --list shows the faults)")
	}
	slices.Sort(ids)
	return chosen, slices.Compact(ids), nil
}

// intersection returns the elements of a that are in b.
func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return !slices.Contains(b, x) })
}

// Trial is one fault on one proxier, or the control if Fault is empty.
type Trial struct {
	Fault   string  `json:"fault"`
	Proxier string  `json:"proxier"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	// Caught are the scenarios named by the fault that failed, Missed those that passed.
	Caught []string `json:"caught"`
	Missed []string `json:"missed"`
	// Also are the scenarios that failed without being named.
	Also   []string `json:"also,omitempty"`
	TookMS int64    `json:"took_ms"`
}

// Verdict is the result of a trial.
type Verdict string

// The verdicts of a trial.
const (
	Caught   Verdict = "caught"         // each scenario that the fault names and the proxier runs has failed
	Survived Verdict = "survived"       // one of them has passed
	Foreign  Verdict = "not applicable" // the fault, or all scenarios that it names, do not apply to this proxier
	Passed   Verdict = "passed"         // of a control: everything passes or is skipped
	Broken   Verdict = "broken"         // no result: the harness failed, or the proxier did not work at all
	NotRun   Verdict = "not run"        // the run was interrupted before the trial had a result
)

// Do runs the controls and then the trials, and judges them. Trials that have no result when the context ends are
// NotRun. It returns an error if there is nothing to run.
func Do(ctx context.Context, o Options) (*Proof, error) {
	chosen, ids, err := o.Select()
	if err != nil {
		return nil, err
	}
	p := &Proof{options: o, faults: chosen, ids: ids}
	for _, proxier := range o.Proxiers {
		p.Controls = append(p.Controls, Trial{Proxier: proxier})
	}
	for _, f := range chosen {
		for _, proxier := range o.Proxiers {
			p.Trials = append(p.Trials, Trial{Fault: f.Name, Proxier: proxier})
		}
	}
	p.control = make([]map[string]report.Result, len(o.Proxiers))
	p.each(p.Controls, func(i int, t *Trial) { p.control[i] = p.runControl(ctx, t) })
	p.each(p.Trials, func(i int, t *Trial) { p.try(ctx, chosen[i/len(o.Proxiers)], t) })
	for _, id := range ids {
		s := p.standing(id)
		if o.Only == nil || !o.Everything || s.State == Proved || s.State == Missing {
			p.Scenarios = append(p.Scenarios, s)
		}
	}
	return p, nil
}

// each calls f for every trial, Options.Parallel at once, and Options.Listen after each.
func (p *Proof) each(trials []Trial, f func(i int, t *Trial)) {
	var jobs errgroup.Group
	jobs.SetLimit(max(p.options.Parallel, 1))
	for i := range trials {
		jobs.Go(func() error {
			f(i, &trials[i])
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.done++; p.options.Listen != nil {
				p.options.Listen(p.done, len(p.Controls)+len(p.Trials), trials[i])
			}
			return nil
		})
	}
	_ = jobs.Wait() // no job returns an error
}

// runControl runs, without a fault, the scenarios that a chosen fault for the proxier names, or all.
func (p *Proof) runControl(ctx context.Context, t *Trial) map[string]report.Result {
	t.Verdict = Passed
	job := Job{Proxier: t.Proxier}
	for _, f := range p.faults {
		switch {
		case p.options.foreign(f, t.Proxier) != "":
		case p.options.Everything:
			job.Scenarios = p.ids
		default:
			job.Scenarios = append(job.Scenarios, intersection(f.Scenarios, p.ids)...)
		}
	}
	slices.Sort(job.Scenarios)
	job.Scenarios = slices.Compact(job.Scenarios)
	results := map[string]report.Result{}
	if len(job.Scenarios) == 0 {
		return results
	}
	outcome, err := p.run(ctx, t, job)
	errs := []error{err}
	for _, r := range outcome.Results {
		results[r.Scenario] = r
		if r.Verdict == spec.Fail || r.Verdict == spec.Broken {
			t.Missed = append(t.Missed, r.Scenario)
			errs = append(errs, fmt.Errorf("%s fails: %s", r.Scenario, r.Reason))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Verdict, t.Reason = Broken, err.Error()
	}
	t.interrupt(ctx)
	return results
}

func (p *Proof) run(ctx context.Context, t *Trial, job Job) (Outcome, error) {
	began := time.Now()
	defer func() { t.TookMS = time.Since(began).Milliseconds() }()
	return p.options.Run(ctx, job)
}

// try runs, with a fault, the scenarios that it names and that pass on the proxier without it, or all that do.
func (p *Proof) try(ctx context.Context, f faults.Fault, t *Trial) {
	n := slices.Index(p.options.Proxiers, t.Proxier)
	control := p.control[n]
	passes := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return control[id].Verdict != spec.Pass })
	}
	named := passes(intersection(f.Scenarios, p.ids))
	job := Job{Fault: f.Name, Proxier: t.Proxier, Scenarios: named}
	if p.options.Everything {
		job.Scenarios = passes(p.ids)
	}
	t.Reason = p.options.foreign(f, t.Proxier)
	if t.Reason == "" && (ctx.Err() != nil || p.Controls[n].Verdict == NotRun) {
		t.Verdict = NotRun
		return
	}
	if t.Reason == "" && len(job.Scenarios) == 0 {
		t.Reason = noneRuns(f, t.Proxier, control)
	}
	if t.Reason != "" {
		t.Verdict = Foreign
		return
	}
	outcome, err := p.run(ctx, t, job)
	t.judge(outcome, named, p.options.idle(t.Proxier), err)
	t.interrupt(ctx)
}

// interrupt makes a trial that ended without a result NotRun, if the context has ended: what is interrupted is not
// broken.
func (t *Trial) interrupt(ctx context.Context) {
	if t.Verdict == Broken && ctx.Err() != nil {
		*t = Trial{Fault: t.Fault, Proxier: t.Proxier, Verdict: NotRun, TookMS: t.TookMS}
	}
}

// For reports whether a fault is about a proxier.
func (o Options) For(f faults.Fault, proxier string) bool {
	if proxier == o.Outside {
		return f.ForOutside(proxier)
	}
	return f.For(proxier)
}

// idle is the verdict on a fault that has changed nothing in a proxier. Nobody has said of a command of --exec that the
// fault changes something there.
func (o Options) idle(proxier string) Verdict {
	if proxier == o.Outside {
		return Foreign
	}
	return Survived
}

// foreign returns why a fault does not apply to a proxier, or nothing if it does.
func (o Options) foreign(f faults.Fault, proxier string) string {
	switch {
	case !o.For(f, proxier):
		return "it is about another mechanism, or a deviation of the proxier undoes it"
	case f.BothFamilies && o.Stack != lab.Dual:
		return "the cluster has one IP family"
	}
	return ""
}

// noneRuns returns why none of a fault's scenarios can show it on a proxier.
func noneRuns(f faults.Fault, proxier string, control map[string]report.Result) string {
	for _, r := range f.Scenarios {
		if reason := control[r].Reason; reason != "" {
			return reason
		}
	}
	return "none of its scenarios runs on " + proxier
}
