// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/suite/spec"
)

// judge runs all cases on an enforcer. One that cannot run here, or not on such pods, is skipped case by case.
func (r *netpolRun) judge(ctx context.Context, e spec.Proxier) ([]spec.Result, error) {
	began := time.Now()
	pool, reason, err := r.build(ctx, e)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		var skipped []spec.Result
		for _, c := range r.cases {
			skipped = append(skipped, resultOf(c, e, spec.Result{Verdict: spec.Skip, Reason: reason}))
		}
		return skipped, nil
	}
	built := time.Since(began)
	began = time.Now()
	out := &judged{run: r, enforcer: e, began: began, results: make([]*spec.Result, len(r.cases)),
		texts: make([]bytes.Buffer, len(r.cases))}
	err = pool.Each(len(r.cases), func(i int, b *netpol.Bench) error {
		verdicts, err := b.Judge(ctx, r.cases[i])
		out.add(i, verdicts, err)
		return ctx.Err()
	})
	if err == nil {
		out.sumUp(built)
	}
	return out.all(), errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
}

// build makes clusters with the enforcer. Where it cannot run there are none, but the reason.
func (r *netpolRun) build(ctx context.Context, e spec.Proxier) (pool netpol.Pool, reason string, err error) {
	size := r.parallel
	if r.random == 0 {
		size = min(size, len(r.cases))
	}
	if err = e.Usable(ctx); err == nil && r.options.Proxier != nil {
		err = r.options.Proxier.Usable(ctx)
	}
	if err == nil {
		pool, err = netpol.NewPool(ctx, size, e, r.options)
	}
	if cannot := (*spec.UnusableError)(nil); errors.As(err, &cannot) {
		fmt.Fprintf(r.stdout, "%s: skipped: %v\n", e.Name(), cannot)
		return nil, cannot.Error(), nil
	}
	return pool, "", err
}

// resultOf names the case and the enforcer in a result.
func resultOf(c netpol.Case, e spec.Proxier, r spec.Result) spec.Result {
	r.Proxier = e.Name()
	r.Scenario = spec.Scenario{ID: c.ID, Group: "networkpolicy", Why: cmp.Or(c.Why, c.Given), Priority: c.Priority,
		Source: c.Source}
	return r
}

// judged is what has come of an enforcer's cases so far. They end in any order, and are shown in that of the file.
type judged struct {
	run      *netpolRun
	enforcer spec.Proxier
	began    time.Time

	mu      sync.Mutex
	results []*spec.Result // nil: not ended yet
	texts   []bytes.Buffer // what there is to see of each case
	ended   int
	shown   int // up to which case
	tables  []time.Duration
}

// add takes up what came of a case.
func (j *judged) add(i int, verdicts []netpol.Verdict, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.run.cases[i]
	result := resultOf(c, j.enforcer, spec.Result{})
	var wrong error
	if result.Verdict, wrong = netpol.SumUp(verdicts, err); wrong != nil {
		result.Reason = wrong.Error()
	}
	if err != nil {
		fmt.Fprintf(&j.texts[i], "%s: %s: %v\n", c.ID, result.Verdict, err)
	}
	for _, v := range verdicts {
		j.tables = append(j.tables, v.Took)
		result.Took += v.Took
		j.run.show(&j.texts[i], c, &v)
	}
	j.results[i] = &result
	for ; j.shown < len(j.results) && j.results[j.shown] != nil; j.shown++ {
		_, _ = j.texts[j.shown].WriteTo(j.run.stdout) // a closed pipe ends the program by itself
	}
	if j.ended++; j.ended%25 == 0 {
		fmt.Fprintf(j.run.progress, "%s: %d of %d cases, %.1f s\n", j.enforcer.Name(), j.ended, len(j.results),
			time.Since(j.began).Seconds())
	}
}

// show prints a table where it was asked for, and what is wrong in it in any case.
func (r *netpolRun) show(w io.Writer, c netpol.Case, v *netpol.Verdict) {
	title := fmt.Sprintf("%s %s %s: %s (%s)", c.ID, c.Priority, v.Title(), v.Verdict, c.Given)
	if r.tables {
		fmt.Fprintf(w, "%s\n", title)
		_ = v.WriteSeen(w)
	}
	if v.Verdict != spec.Pass {
		fmt.Fprintf(w, "%s: %d cells are wrong\n", title, len(v.Wrong))
		_ = netpol.WriteWords(w, c)
		_ = v.WriteDifferences(w)
	}
}

// all are the results of the cases that have ended.
func (j *judged) all() []spec.Result {
	var out []spec.Result
	for _, r := range j.results {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out
}

func (j *judged) sumUp(built time.Duration) {
	count := map[spec.Verdict]int{}
	for _, x := range j.results {
		count[x.Verdict]++
	}
	fmt.Fprintf(j.run.stdout, "%s: %d passed, %d failed, %d broken, %.1f s after %.1f s of building", j.enforcer.Name(),
		count[spec.Pass], count[spec.Fail], count[spec.Broken], time.Since(j.began).Seconds(), built.Seconds())
	if slices.Sort(j.tables); len(j.tables) > 0 {
		fmt.Fprintf(j.run.stdout, "; a table of %d probes takes %d ms (median of %d)", netpol.Cells,
			j.tables[len(j.tables)/2].Milliseconds(), len(j.tables))
	}
	fmt.Fprintln(j.run.stdout)
}
