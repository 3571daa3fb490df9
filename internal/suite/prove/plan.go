// SPDX-License-Identifier: Apache-2.0

// Package prove shows that scenarios can fail: it runs them on proxiers with a fault in them, and without one, and
// judges who has noticed. It starts nothing itself; a Runner does.
package prove

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// Job is a run of scenarios on one proxier.
type Job struct {
	Fault     string // empty: none, the control
	Proxier   string
	Scenarios []string
}

// Outcome is what came of a job.
type Outcome struct {
	Results []report.Result `json:"results"`
	// Touched is how often the fault has done something.
	Touched int `json:"touched"`
	// Refused are the states that the proxier could not be brought to obey.
	Refused []string `json:"refused"`
}

// Runner carries a job out. It may be called from several goroutines at once.
type Runner func(context.Context, Job) (Outcome, error)

// Options say what is to be proved.
type Options struct {
	Faults    []faults.Fault
	Immune    []faults.Immune
	Scenarios []spec.Scenario
	Proxiers  []string
	// Focus limits the scenarios, Faults limits the faults. Nil: all.
	Focus, Only *regexp.Regexp
	// Everything runs all scenarios with each fault, to see who notices beside those that it names.
	Everything bool
	// Parallel is how many jobs run at once.
	Parallel int
	// Listen is told of each job that has ended. Nil: nobody.
	Listen func(done, of int, t Trial)

	Run Runner
}

// Trial is one fault on one proxier, and the control where Fault is empty.
type Trial struct {
	Fault   string  `json:"fault"`
	Proxier string  `json:"proxier"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	// Caught are the scenarios named by the fault that failed, Missed those that passed.
	Caught []string `json:"caught"`
	Missed []string `json:"missed"`
	// Also failed, without being named.
	Also   []string `json:"also,omitempty"`
	TookMS int64    `json:"took_ms"`
}

// Verdict is what came of a trial.
type Verdict string

// The verdicts of a trial.
const (
	Caught   Verdict = "caught"         // each scenario that the fault names and the proxier runs has failed
	Survived Verdict = "survived"       // one of them has passed
	Foreign  Verdict = "not applicable" // the fault, or all that it names, is none of this proxier's business
	Passed   Verdict = "passed"         // of a control: everything passes or is skipped
	Broken   Verdict = "broken"         // nothing is known: the harness failed, or the proxier could not work at all
)

// Do runs all trials and judges. Nothing to run is an error, and so is the end of the context.
func Do(ctx context.Context, o Options) (*Proof, error) {
	p := &Proof{options: o}
	for _, s := range o.Scenarios {
		if o.Focus == nil || o.Focus.MatchString(s.ID) {
			p.rows = append(p.rows, s.ID)
		}
	}
	slices.Sort(p.rows)
	var wanted []Trial
	for _, f := range o.Faults {
		for _, proxier := range o.Proxiers {
			if o.Only == nil || o.Only.MatchString(f.Name) {
				wanted = append(wanted, Trial{Fault: f.Name, Proxier: proxier})
			}
		}
	}
	if len(p.rows) == 0 || len(wanted) == 0 {
		return nil, errors.New("no fault or no scenario matches: nothing would be proved (viplab prove --list shows the " +
			"faults)")
	}
	controls := make([]Trial, len(o.Proxiers))
	p.control = make([]map[string]report.Result, len(o.Proxiers))
	total := len(controls) + len(wanted)
	var mu sync.Mutex
	done := 0
	ended := func(t Trial) {
		mu.Lock()
		defer mu.Unlock()
		if done++; o.Listen != nil {
			o.Listen(done, total, t)
		}
	}
	each(o.Parallel, len(controls), func(i int) {
		controls[i], p.control[i] = p.runControl(ctx, o.Proxiers[i])
		ended(controls[i])
	})
	each(o.Parallel, len(wanted), func(i int) {
		wanted[i] = p.try(ctx, wanted[i])
		ended(wanted[i])
	})
	p.Controls, p.Trials = controls, wanted
	p.judgeScenarios()
	return p, context.Cause(ctx)
}

// each calls f for 0 to n-1, at most limit at once.
func each(limit, n int, f func(int)) {
	slots := make(chan struct{}, max(limit, 1))
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// claimed are the rows that some fault names, of those to be proved.
func (p *Proof) claimed() []string {
	var out []string
	for _, f := range p.options.Faults {
		out = append(out, p.named(f)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// named are the rows that a fault names, of those to be proved.
func (p *Proof) named(f faults.Fault) []string {
	return slices.DeleteFunc(slices.Clone(f.Scenarios), func(r string) bool { return !slices.Contains(p.rows, r) })
}

// runControl runs everything without a fault.
func (p *Proof) runControl(ctx context.Context, proxier string) (Trial, map[string]report.Result) {
	t := Trial{Proxier: proxier, Verdict: Passed}
	job := Job{Proxier: proxier, Scenarios: p.claimed()}
	if p.options.Everything {
		job.Scenarios = p.rows
	}
	began := time.Now()
	outcome, err := p.options.Run(ctx, job)
	t.TookMS = time.Since(began).Milliseconds()
	results := map[string]report.Result{}
	for _, r := range outcome.Results {
		results[r.Scenario] = r
		if r.Verdict == spec.Fail || r.Verdict == spec.Broken {
			t.Missed = append(t.Missed, r.Scenario)
			t.Verdict, t.Reason = Broken, "without a fault, not all pass"
		}
	}
	if err != nil {
		t.Verdict, t.Reason = Broken, err.Error()
	}
	return t, results
}

func (p *Proof) fault(name string) faults.Fault {
	i := slices.IndexFunc(p.options.Faults, func(f faults.Fault) bool { return f.Name == name })
	return p.options.Faults[i]
}

// try runs a fault on a proxier: those of its rows that pass there without it, or everything that does.
func (p *Proof) try(ctx context.Context, t Trial) Trial {
	f := p.fault(t.Fault)
	control := p.control[slices.Index(p.options.Proxiers, t.Proxier)]
	runnable := func(r string) bool { return control[r].Verdict == spec.Pass }
	var named, job []string
	for _, r := range p.named(f) {
		if runnable(r) {
			named = append(named, r)
		}
	}
	job = named
	if p.options.Everything {
		job = slices.DeleteFunc(slices.Clone(p.rows), func(r string) bool { return !runnable(r) })
	}
	if !f.For(t.Proxier) || len(job) == 0 {
		t.Verdict, t.Reason = Foreign, foreign(f, t.Proxier, control)
		return t
	}
	began := time.Now()
	outcome, err := p.options.Run(ctx, Job{Fault: f.Name, Proxier: t.Proxier, Scenarios: job})
	t.TookMS = time.Since(began).Milliseconds()
	t.judge(outcome, named, err)
	return t
}

func foreign(f faults.Fault, proxier string, control map[string]report.Result) string {
	if !f.For(proxier) {
		return "it is about another mechanism"
	}
	for _, r := range f.Scenarios {
		if reason := control[r].Reason; reason != "" {
			return reason
		}
	}
	return fmt.Sprintf("none of its scenarios runs on %s", proxier)
}
