// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/suite/spec"
)

// judge runs all cases on an enforcer. It skips an enforcer that cannot run here or does not support the pod network.
func (r *netpolRun) judge(ctx context.Context, e spec.Proxier) ([]spec.Result, error) {
	j := &judging{netpolRun: r, enforcer: e, began: time.Now(), results: make([]*spec.Result, len(r.cases)),
		texts: make([]bytes.Buffer, len(r.cases))}
	err := e.Usable(ctx)
	if err == nil && r.options.Proxier != nil {
		err = r.options.Proxier.Usable(ctx)
	}
	var pool netpol.Pool
	if err == nil {
		pool, err = netpol.NewPool(ctx, min(r.flags.parallel, len(r.cases)), e, r.options)
	}
	if cannot := (*spec.UnusableError)(nil); errors.As(err, &cannot) {
		fmt.Fprintf(r.stdout, "%s: skipped: %v\n", e.Name(), cannot)
		for i := range j.results {
			j.results[i] = &spec.Result{Verdict: spec.Skip, Reason: cannot.Error()}
		}
		return j.all(), nil
	}
	if err != nil {
		return nil, err
	}
	built := time.Since(j.began)
	j.began = time.Now()
	err = pool.Each(len(r.cases), func(i int, b *netpol.Bench) error {
		verdicts, err := b.Judge(ctx, r.cases[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if first := j.add(i, verdicts, err); first && r.generated() {
			return j.shrink(ctx, b, r.cases[i])
		}
		return nil
	})
	if err == nil || errors.Is(err, errCounterexample) {
		err = nil
		j.summarize(built)
	}
	return j.all(), errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
}

// judging is a run of the cases on one enforcer. Cases end in any order and are shown in the order of the file.
type judging struct {
	*netpolRun
	enforcer spec.Proxier
	began    time.Time

	mu      sync.Mutex
	results []*spec.Result // by case, nil until it has ended
	texts   []bytes.Buffer // the output of each case
	ended   int
	shown   int // the first case that has not been printed
	failed  bool
	tables  []time.Duration
}

// add adds the result of a case, and reports whether it is the first that has failed.
func (j *judging) add(i int, verdicts []netpol.Verdict, err error) (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, result := j.cases[i], &spec.Result{}
	j.results[i] = result
	var wrong error
	if result.Verdict, wrong = netpol.SumUp(verdicts, err); wrong != nil {
		result.Reason = wrong.Error()
	}
	if refused := (*netpol.ApplyError)(nil); errors.As(err, &refused) {
		j.refused = append(j.refused, err.Error())
	}
	if err != nil {
		fmt.Fprintf(&j.texts[i], "%s: %s: %v\n", c.ID, result.Verdict, err)
	}
	for _, v := range verdicts {
		j.tables = append(j.tables, v.Took)
		result.Took += v.Took
		if !j.generated() || result.Verdict == spec.Broken {
			j.show(&j.texts[i], c, &v)
		}
	}
	for ; j.shown < len(j.results) && j.results[j.shown] != nil; j.shown++ {
		_, _ = j.texts[j.shown].WriteTo(j.stdout) // SIGPIPE ends the program if the pipe is closed
	}
	every := 25
	if j.generated() {
		every = 250
	}
	if j.ended++; j.ended%every == 0 {
		fmt.Fprintf(j.progress, "%s: %d of %d cases, %.1f s\n", j.enforcer.Name(), j.ended, len(j.results),
			time.Since(j.began).Seconds())
	}
	first = result.Verdict == spec.Fail && !j.failed
	j.failed = j.failed || first
	return first
}

// show prints the table if --tables is set, and always its wrong cells.
func (r *netpolRun) show(w io.Writer, c netpol.Case, v *netpol.Verdict) {
	title := fmt.Sprintf("%s %s %s: %s (%s)", c.ID, c.Priority, v.Title(), v.Verdict, c.Given)
	if r.flags.tables {
		fmt.Fprintf(w, "%s\n", title)
		_ = v.WriteMarks(w)
	}
	if v.Verdict != spec.Pass {
		fmt.Fprintf(w, "%s: %d cells are wrong\n", title, len(v.Wrong))
		_ = netpol.Describe(w, c)
		_ = v.WriteDifferences(w)
	}
}

// errCounterexample ends a run of generated cases early.
var errCounterexample = errors.New("a counterexample was found")

// shrink minimizes a failing generated case, shows it and writes it to a file.
func (j *judging) shrink(ctx context.Context, b *netpol.Bench, c netpol.Case) error {
	fmt.Fprintf(j.progress, "%s: %s fails, and is being made smaller\n", j.enforcer.Name(), c.ID)
	small, err := netpol.Shrink(c, j.options.Stack, func(c netpol.Case) (bool, error) {
		verdict, _ := netpol.SumUp(b.Judge(ctx, c))
		return verdict == spec.Fail, ctx.Err()
	})
	if err != nil {
		return err
	}
	small.Given = "what is left of " + c.ID
	path := filepath.Join(j.flags.out, fmt.Sprintf("%s-%s.json", j.enforcer.Name(), small.ID))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(netpol.WriteCase(file, small), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	verdicts, err := b.Judge(ctx, small)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		fmt.Fprintf(j.stdout, "%s: %v\n", small.ID, err)
	}
	for _, v := range verdicts {
		j.show(j.stdout, small, &v)
	}
	fmt.Fprintf(j.stdout, "again: viplab netpol --enforcer %s --ip %s --pods %s --cases %s\n", j.enforcer.Name(),
		j.options.Stack, j.options.PodNetwork, path)
	return errCounterexample
}

// all returns the results of the cases that have ended. Generated cases are one result together.
func (j *judging) all() []spec.Result {
	var out []spec.Result
	all := spec.Result{Verdict: spec.Pass, Took: time.Since(j.began)}
	for i, r := range j.results {
		if r == nil {
			continue
		}
		c := j.cases[i]
		if rank(r.Verdict) > rank(all.Verdict) {
			all.Verdict, all.Reason = r.Verdict, fmt.Sprintf("%s: %s", c.ID, r.Reason)
		}
		r.Scenario = spec.Scenario{ID: c.ID, Group: "networkpolicy", Why: cmp.Or(c.Why, c.Given), Priority: c.Priority,
			Source: c.Source}
		r.Proxier = j.enforcer.Name()
		out = append(out, *r)
	}
	if !j.generated() {
		return out
	}
	all.Proxier = j.enforcer.Name()
	all.Scenario = spec.Scenario{ID: fmt.Sprintf("random-%d", j.flags.seed), Group: "networkpolicy",
		Why: fmt.Sprintf("%d generated cases, seed %d", len(j.cases), j.flags.seed), Priority: spec.P1}
	return []spec.Result{all}
}

// rank orders verdicts. The verdict with the highest rank is that of the run.
func rank(v spec.Verdict) int {
	return slices.Index([]spec.Verdict{spec.Pass, spec.Skip, spec.Broken, spec.Fail}, v)
}

func (j *judging) summarize(built time.Duration) {
	count := map[spec.Verdict]int{}
	for _, x := range j.results {
		if x != nil {
			count[x.Verdict]++
		}
	}
	took := time.Since(j.began).Seconds()
	if j.generated() {
		fmt.Fprintf(j.stdout, "%s: %d generated cases, seed %d: %s, %d broken, %.1f s\n", j.enforcer.Name(), j.ended,
			j.flags.seed, j.all()[0].Verdict, count[spec.Broken], took)
		return
	}
	fmt.Fprintf(j.stdout, "%s: %d passed, %d failed, %d broken, %.1f s after %.1f s of building", j.enforcer.Name(),
		count[spec.Pass], count[spec.Fail], count[spec.Broken], took, built.Seconds())
	if slices.Sort(j.tables); len(j.tables) > 0 {
		fmt.Fprintf(j.stdout, "; a table of %d probes takes %d ms (median of %d)", netpol.Cells,
			j.tables[len(j.tables)/2].Milliseconds(), len(j.tables))
	}
	fmt.Fprintln(j.stdout)
}
