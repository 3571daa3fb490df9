// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

// Options define a run.
type Options struct {
	// Engine are the options of the clusters: one proxier, and no scenarios.
	Engine engine.Options
	// Cases is the number of cases, generated from Seed.
	Cases int
	Seed  uint64
	// First are played before those that are generated: failures of earlier runs.
	First []Case
	// Time ends the run early. Zero means no limit.
	Time time.Duration
	// ShrinkTime ends making a failure smaller. Zero means no limit.
	ShrinkTime time.Duration
	// FindOnly ends the run at the first failure, without playing it again.
	FindOnly bool
	// Collect goes on after failures and keeps them as they are (Outcome.Failures).
	Collect bool
	// Keep, if not nil, is called with the failure when it is found, and each time that it got smaller. Its error ends
	// the run.
	Keep func(*Failure) error
	// Listen, if not nil, is called after each batch.
	Listen func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Cases, Of, States int
	Took              time.Duration
}

// Outcome is the result of a run on one proxier.
type Outcome struct {
	Cases, Rows int
	// Known are the known deviations that were met, Broken the cases that could not be judged, with the reasons.
	Known, Broken []string
	Took          time.Duration
	Coverage      *Coverage
	// Failure is the first case that failed, made smaller. It is nil if none failed.
	Failure *Failure
	// Failures are all failures of a run that collects them.
	Failures []spec.Result
	// Note describes the clusters.
	Note string
}

// Failure is a case that fails.
type Failure struct {
	Case   Case
	Result spec.Result
	// Tries is the number of smaller cases that were played.
	Tries int
	// Again is how many failed in the same way of the Of times that the case was played once more. A case that failed
	// once and not again is not made smaller. Of is 0 if the run ended before.
	Again, Of int
}

// Kinds returns how the case disagreed with the oracle: the rule, the protocol and what was seen, sorted.
func (f *Failure) Kinds() []string { return kindsOf(f.Result) }

// rows returns the rows that failed unexpectedly.
func (f *Failure) rows() []spec.Probed { return Failed(f.Result) }

// Failed returns the rows of a result that failed unexpectedly.
func Failed(r spec.Result) []spec.Probed {
	return slices.DeleteFunc(slices.Clone(r.Probed), func(p spec.Probed) bool { return p.Holds || p.Known != "" })
}

// batch is the number of cases that share a cluster, firstBatch that of the first cluster. Each of the next has
// twice as many, so that a proxier that fails often is found at once.
const batch, firstBatch = 64, 8

// Run plays cases until one fails, and then makes it smaller. If the context ends meanwhile, it returns the context's
// error and the outcome so far.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	began := time.Now()
	out := &Outcome{Coverage: NewCoverage()}
	defer func() { out.Took = time.Since(began) }()
	total := len(o.First) + o.Cases
	known := map[string]bool{}
	for out.Cases < total && (o.Time == 0 || time.Since(began) < o.Time) {
		cases := o.cases(out.Cases)
		results, note, err := play(ctx, o.Engine, cases, Playing{Slot: out.Cases, Coverage: out.Coverage})
		if err != nil {
			return out, err
		}
		out.Note = note
		var failures []*Failure
		for i, r := range results {
			if r.Verdict == spec.Fail {
				failures = append(failures, &Failure{Case: cases[i], Result: r})
			}
			if ctx.Err() == nil || r.Verdict != spec.Broken { // what is interrupted is not broken
				out.add(cases[i], r, known)
			}
		}
		switch {
		case len(failures) == 0:
		case o.Collect:
			for _, f := range failures {
				out.Failures = append(out.Failures, f.Result)
			}
		case o.FindOnly:
			out.Failure = failures[0]
			return out, nil
		default:
			return out, out.fail(ctx, o, failures)
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if o.Listen != nil {
			o.Listen(Progress{out.Cases, total, out.Coverage.States, time.Since(began)})
		}
	}
	return out, nil
}

// cases returns the next cases of the run, from number from on. Those of earlier runs are not mixed with others, which
// may have the same IDs.
func (o Options) cases(from int) (out []Case) {
	if from < len(o.First) {
		return o.First[from:min(from+batch, len(o.First))]
	}
	most := min(batch, from-len(o.First)+firstBatch)
	for i := from - len(o.First); i < o.Cases && len(out) < most; i++ {
		c := Random(o.Seed, uint64(i))
		if o.policed() {
			c.isolate(o.Seed, uint64(i))
		}
		out = append(out, c)
	}
	return out
}

// policed reports whether somebody enforces NetworkPolicies.
func (o Options) policed() bool {
	enforces := func(p spec.Proxier) bool { return p.Features()[spec.NetworkPolicy] }
	return o.Engine.Enforcer != nil || slices.ContainsFunc(o.Engine.Proxiers, enforces)
}

// fail reports the first of the failures that happens again, or the first one if none does, and makes it smaller.
func (o *Outcome) fail(ctx context.Context, options Options, failures []*Failure) error {
	keep := options.Keep
	if keep == nil {
		keep = func(*Failure) error { return nil }
	}
	isNotReady := func(f *Failure) bool { return slices.Contains(kindsOf(f.Result), notReady) }
	seen := slices.DeleteFunc(slices.Clone(failures), isNotReady)
	o.Failure = append(seen, failures...)[0]
	if err := keep(o.Failure); err != nil {
		return err
	}
	if len(seen) == 0 {
		var err error
		if seen, err = options.causes(ctx, failures); err != nil {
			return err
		}
	}
	for _, f := range seen {
		j := options.judgeOf(f.Result)
		if err := f.again(ctx, j); err != nil {
			return err
		}
		if f.Again > 0 {
			o.Failure = f
			if err := keep(f); err != nil {
				return err
			}
			return f.shrink(ctx, j, options.ShrinkTime, keep)
		}
	}
	return nil
}

// causes returns those of the failures that keep a proxier from converging by themselves. In a cluster that they share,
// all cases fail then.
func (o Options) causes(ctx context.Context, failures []*Failure) (causes []*Failure, err error) {
	var cases []Case
	for _, f := range failures {
		cases = append(cases, f.Case)
	}
	indexes, results, err := o.judgeOf(failures[0].Result).failing(ctx, cases)
	for _, i := range indexes {
		causes = append(causes, &Failure{Case: cases[i], Result: results[i]})
	}
	return causes, err
}

// add adds the result of a case.
func (o *Outcome) add(c Case, r spec.Result, known map[string]bool) {
	o.Cases++
	o.Coverage.Add(c)
	o.Rows += len(r.Probed)
	for _, k := range r.Known {
		if !known[k] {
			known[k] = true
			o.Known = append(o.Known, k)
		}
	}
	if r.Verdict == spec.Broken {
		o.Broken = append(o.Broken, c.ID+": "+r.Reason)
	}
}

// play plays cases in one cluster and returns their results in the same order, and the description of the cluster.
func play(ctx context.Context, o engine.Options, cases []Case, p Playing) ([]spec.Result, string, error) {
	o.Scenarios = nil
	for i, c := range cases {
		own := p
		own.Slot += i
		o.Scenarios = append(o.Scenarios, c.Scenario(own))
	}
	byID, note, err := playAll(ctx, o)
	if err != nil {
		return nil, "", err
	}
	var results []spec.Result
	for _, c := range cases {
		results = append(results, byID[c.ID])
	}
	if results[0].Verdict == spec.Skip {
		return nil, "", errors.New(results[0].Reason)
	}
	if ctx.Err() == nil && allBroken(results) {
		return nil, "", fmt.Errorf("no case could be played: %s", results[0].Reason)
	}
	return results, note, nil
}

// playAll plays scenarios in one cluster and returns their results by id, and the description of the cluster.
func playAll(ctx context.Context, o engine.Options) (map[string]spec.Result, string, error) {
	run, err := engine.Start(ctx, o)
	if err != nil {
		return nil, "", err
	}
	byID := map[string]spec.Result{}
	for _, r := range run.Results() {
		byID[r.Scenario.ID] = r
	}
	return byID, run.Note(), run.Close(context.WithoutCancel(ctx))
}

func allBroken(results []spec.Result) bool {
	for _, r := range results {
		if r.Verdict != spec.Broken {
			return false
		}
	}
	return true
}
