// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/suite/spec"
)

// randomRun is a run of generated cases on one enforcer. It ends with the first counterexample.
type randomRun struct {
	*netpolRun
	enforcer spec.Proxier
	began    time.Time

	mu     sync.Mutex
	ended  int
	broken int
	result spec.Result
}

// errFound ends a run early.
var errFound = errors.New("a counterexample was found")

// judgeRandom runs generated cases. All of them are one result.
func (r *netpolRun) judgeRandom(ctx context.Context, e spec.Proxier) ([]spec.Result, error) {
	all := netpol.Case{ID: fmt.Sprintf("random-%d", r.seed), Priority: spec.P1,
		Given: fmt.Sprintf("%d generated cases, seed %d", r.random, r.seed)}
	pool, reason, err := r.build(ctx, e)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return []spec.Result{resultOf(all, e, spec.Result{Verdict: spec.Skip, Reason: reason})}, nil
	}
	run := &randomRun{netpolRun: r, enforcer: e, began: time.Now(), result: spec.Result{Verdict: spec.Pass}}
	err = pool.Each(r.random, func(i int, b *netpol.Bench) error {
		c := netpol.Random(r.seed, uint64(i))
		if !r.focus.MatchString(c.ID) {
			return nil
		}
		return run.one(ctx, b, c)
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	run.result.Took = time.Since(run.began)
	fmt.Fprintf(r.stdout, "%s: %d generated cases, seed %d: %s, %d broken, %.1f s\n", e.Name(), run.ended, r.seed,
		run.result.Verdict, run.broken, run.result.Took.Seconds())
	return []spec.Result{resultOf(all, e, run.result)}, errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
}

// one judges a case, and makes a counterexample of one that fails.
func (r *randomRun) one(ctx context.Context, b *netpol.Bench, c netpol.Case) error {
	verdict, err := b.Passes(ctx, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	first := r.add(c, verdict, err)
	if !first {
		return nil
	}
	fails := func(c netpol.Case) (bool, error) {
		verdict, _ := b.Passes(ctx, c)
		return verdict == spec.Fail, ctx.Err()
	}
	small, err := netpol.Shrink(c, r.options.Stack, fails)
	if err != nil {
		return err
	}
	small.Given = "what is left of " + c.ID
	return errors.Join(errFound, r.tell(ctx, b, small))
}

// add counts a case that has ended, and tells whether it is the first that has failed.
func (r *randomRun) add(c netpol.Case, v spec.Verdict, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended++; r.ended%250 == 0 {
		fmt.Fprintf(r.progress, "%s: %d of %d generated cases, %.1f s\n", r.enforcer.Name(), r.ended, r.random,
			time.Since(r.began).Seconds())
	}
	switch {
	case v == spec.Broken:
		r.broken++
		fmt.Fprintf(r.stdout, "%s: %s: broken: %v\n", r.enforcer.Name(), c.ID, err)
		if r.result.Verdict == spec.Pass {
			r.result.Verdict, r.result.Reason = spec.Broken, fmt.Sprintf("%s: %v", c.ID, err)
		}
	case v == spec.Fail && r.result.Verdict != spec.Fail:
		r.result.Verdict, r.result.Reason = spec.Fail, fmt.Sprintf("%s: %v", c.ID, err)
		fmt.Fprintf(r.progress, "%s: %s fails, and is being made smaller\n", r.enforcer.Name(), c.ID)
		return true
	}
	return false
}

// tell shows a counterexample, and leaves it as a file.
func (r *randomRun) tell(ctx context.Context, b *netpol.Bench, c netpol.Case) error {
	path := filepath.Join(r.out, fmt.Sprintf("%s-%s.json", r.enforcer.Name(), c.ID))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(netpol.WriteCase(file, c), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	verdicts, err := b.Judge(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		fmt.Fprintf(r.stdout, "%s: %v\n", c.ID, err)
	}
	for _, v := range verdicts {
		r.show(r.stdout, c, &v)
	}
	fmt.Fprintf(r.stdout, "again: viplab netpol --enforcer %s --ip %s --pods %s --cases %s\n", r.enforcer.Name(),
		r.options.Stack, r.options.PodNetwork, path)
	return nil
}
