// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/suite/spec"
)

// Run is a run of cells. Read the results from the cells.
type Run struct {
	options Options
	cells   []*Cell
	ended   atomic.Int64
	done    chan struct{} // closed when all cells have ended
	over    chan struct{} // closed when, after that, all clusters are gone but those that are kept
	leaving sync.WaitGroup

	mu      sync.Mutex
	kept    []*environment     // with failed scenarios in them, if Options.KeepFailed
	retired []*cluster.Cluster // in which nothing happens any more, the oldest first
	note    string             // how the first cluster describes itself
	left    []error            // errors from taking clusters down
}

// scenarioLimit bounds one scenario. It is for hangs: in a software-emulated machine that has other things to do as
// well, a scenario takes a minute where it takes a second elsewhere.
const scenarioLimit = 15 * time.Minute

// NewRun returns a run of planned cells, possibly of only some of the plan. It starts nothing; Do does.
func NewRun(cells []*Cell, o Options) *Run {
	return &Run{options: o, cells: cells, done: make(chan struct{}), over: make(chan struct{})}
}

// Start plans and runs the cells, and returns when all have ended; Close waits until its clusters are gone. If the
// options are invalid, it returns an error and runs nothing.
func Start(ctx context.Context, o Options) (*Run, error) {
	cells, err := Plan(ctx, o)
	if err != nil {
		return nil, err
	}
	r := NewRun(cells, o)
	go r.Do(ctx)
	r.Wait()
	return r, nil
}

// Do runs the cells, takes the clusters down and returns; it is called once. Cells whose skip was decided end first.
func (r *Run) Do(ctx context.Context) {
	defer close(r.over)
	r.skipAll()
	for _, p := range r.options.Proxiers {
		r.runProxier(ctx, p)
	}
	close(r.done)
	r.leaving.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.retired {
		r.noteLocked(c.Close())
	}
	r.retired = nil
}

// Wait returns when all cells have ended.
func (r *Run) Wait() { <-r.done }

// Note describes the kind of cluster that the scenarios ran in: overlay and why, pods, families.
func (r *Run) Note() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note
}

// Results returns the results of all cells, in the order of the plan.
func (r *Run) Results() []spec.Result {
	r.Wait()
	var out []spec.Result
	for _, c := range r.cells {
		out = append(out, c.result)
	}
	return out
}

// Kept describes how to enter each namespace of the clusters kept for failed scenarios.
func (r *Run) Kept() []string {
	r.Wait()
	var out []string
	for _, e := range r.kept {
		out = append(out, e.doors()...)
	}
	return out
}

// Close takes down the clusters that were kept. It returns the errors of that and of all earlier clusters, such as a
// proxier that does not leave its node.
func (r *Run) Close(ctx context.Context) error {
	<-r.over
	errs := r.left
	for _, e := range r.kept {
		errs = append(errs, e.close(ctx))
	}
	return errors.Join(errs...)
}

func (r *Run) skipAll() {
	for _, c := range r.cells {
		select {
		case <-c.done: // broken already
			r.announce(c)
			continue
		default:
		}
		if c.skip != "" {
			r.end(c, spec.Result{Verdict: spec.Skip, Reason: c.skip, Missing: c.missing, Cause: spec.CauseOf(c.missing)})
		}
	}
}

func (r *Run) end(c *Cell, result spec.Result) {
	c.finish(result)
	r.announce(c)
}

func (r *Run) announce(c *Cell) {
	n := r.ended.Add(1)
	if r.options.Listen != nil {
		r.options.Listen(Event{Cell: c, Result: &c.result, Ended: int(n), Total: len(r.cells)})
	}
}

// runCell runs one scenario and returns its result, also where the scenario panics.
func (r *Run) runCell(ctx context.Context, env *environment, c *Cell) (result spec.Result) {
	if r.options.Listen != nil {
		r.options.Listen(Event{Cell: c, Ended: int(r.ended.Load()), Total: len(r.cells)})
	}
	began := time.Now()
	run := ctx
	limit := machine.Limit(scenarioLimit)
	ctx, cancel := context.WithTimeoutCause(run, limit, fmt.Errorf("the scenario's limit of %s is over", limit))
	defer cancel()
	w, err := newWorld(ctx, env, c)
	if err == nil {
		err = guard(func() error { return w.play(ctx) })
	}
	result = verdictOf(err)
	result.Took = time.Since(began)
	if w != nil {
		result.Probed, result.NotAsked = w.record.probed, w.record.notAsked
		if result.Verdict == spec.Pass {
			result.Reason = strings.Join(w.remarks, "\n")
		}
		w.record.expected.compare(&result, err)
		if (result.Verdict == spec.Fail || result.Verdict == spec.Broken) && run.Err() == nil { // not interrupted
			w.explain(context.WithoutCancel(ctx), &result)
		}
		if result.Verdict == spec.Pass && w.record.empty() {
			result.Verdict, result.Cause = spec.Skip, spec.NotApplicable
			result.Reason = "none of its rows is asked of this proxier"
		}
		holds := result.Verdict == spec.Pass || result.Verdict == spec.Known
		keep := c.alone() || r.options.KeepFailed && !holds
		if err := w.close(keep); err != nil && holds {
			result = verdictOf(spec.HarnessErrorf("clean up after the scenario: %w", err))
		}
	}
	if result.Verdict == spec.Pass && len(c.missing) > 0 {
		result.Verdict = spec.Fail
		result.Reason = fmt.Sprintf("%s passes, but does not declare %s", c.Proxier.Name(), joinFeatures(c.missing))
	}
	return result
}

// guard returns the error of f, or the one that spec.Try or spec.Must ended it with. Any other panic becomes a
// HarnessError.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = spec.HarnessErrorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return spec.Tried(f)
}

// notBuilt returns the result where no cluster could be built: a skip if the proxier cannot be configured so.
func notBuilt(err error) spec.Result {
	var cannot *spec.UnusableError
	if errors.As(err, &cannot) {
		return spec.Result{Verdict: spec.Skip, Cause: spec.NotRun, Reason: err.Error()}
	}
	return verdictOf(err)
}

// verdictOf is pass for nil, broken for a fault of the harness or an interrupted run, and fail for the rest.
func verdictOf(err error) spec.Result {
	var fault *spec.HarnessError
	switch {
	case err == nil:
		return spec.Result{Verdict: spec.Pass}
	case errors.As(err, &fault), errors.Is(err, context.Canceled):
		return spec.Result{Verdict: spec.Broken, Reason: err.Error()}
	default:
		return spec.Result{Verdict: spec.Fail, Reason: err.Error()}
	}
}

func (c *Cell) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
