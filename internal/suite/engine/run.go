// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	over    chan struct{} // closed when all clusters are removed too, except the kept ones
	leaving sync.WaitGroup

	mu      sync.Mutex
	kept    []*environment     // clusters with failed scenarios, if Options.KeepFailed
	retired []*cluster.Cluster // clusters that are no longer used, the oldest first
	note    string             // the first cluster's description
	left    []error            // errors of removing clusters
}

// scenarioLimit bounds one scenario, to detect hangs. A scenario of one second takes a minute on a busy machine with
// software emulation.
const scenarioLimit = 15 * time.Minute

// NewRun returns a run of all or some of the planned cells. Do starts it.
func NewRun(cells []*Cell, o Options) *Run {
	return &Run{options: o, cells: cells, done: make(chan struct{}), over: make(chan struct{})}
}

// Start plans and runs the cells, and returns when all have ended. Close waits until the clusters are removed. If the
// options are invalid, it returns an error and runs nothing.
func Start(ctx context.Context, o Options) (*Run, error) {
	cells, err := Plan(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := forget(cells); err != nil {
		return nil, err
	}
	r := NewRun(cells, o)
	go r.Do(ctx)
	r.Wait()
	return r, nil
}

// forget removes the evidence that earlier runs have left in the folders of the cells.
func forget(cells []*Cell) error {
	for _, c := range cells {
		if c.out == "" {
			continue
		}
		folder := filepath.Join(c.out, c.folder())
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove the failure of an earlier run: %w", err)
		}
		_ = os.Remove(filepath.Dir(folder)) // stays if there are failures of other proxiers
	}
	return nil
}

// Do runs the cells and removes the clusters. Call it once. Skipped cells end first, and all of them if the kernel
// cannot do the overlay.
func (r *Run) Do(ctx context.Context) {
	defer close(r.over)
	r.skipAll()
	r.tryOverlay(ctx)
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

// Wait waits until all cells have ended.
func (r *Run) Wait() { <-r.done }

// Note describes the kind of cluster that the scenarios ran in: the overlay and the reason for it, the pod network and
// the families.
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
		out = append(out, e.enterCommands()...)
	}
	return out
}

// Standing returns the first of the clusters that were kept, or nil.
func (r *Run) Standing() *Standing {
	r.Wait()
	if len(r.kept) == 0 {
		return nil
	}
	return &Standing{env: r.kept[0]}
}

// Close removes the kept clusters. It returns the errors of removing all clusters of the run, such as a proxier that
// does not stop.
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

// runCell runs one scenario and returns its result, even if the scenario panics.
func (r *Run) runCell(ctx context.Context, env *environment, c *Cell) (result spec.Result) {
	if r.options.Listen != nil {
		r.options.Listen(Event{Cell: c, Ended: int(r.ended.Load()), Total: len(r.cells)})
	}
	leave := env.demand.join()
	defer leave()
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
	if result.Verdict == spec.Fail && run.Err() != nil { // what is interrupted fails in many ways, which prove nothing
		result.Verdict = spec.Broken
	}
	result.Took, result.NotReady = time.Since(began), errors.As(err, new(notReadyError))
	if w != nil {
		result.Probed, result.OmittedRows = w.record.probed, w.record.omittedRows
		if result.Verdict == spec.Pass {
			result.Reason = strings.Join(w.remarks, "\n")
		}
		w.record.expected.Compare(&result, outcomesOf(&result, err))
		if (result.Verdict == spec.Fail || result.Verdict == spec.Broken) && run.Err() == nil { // not interrupted
			w.explain(run, &result)
		}
		if result.Verdict == spec.Pass && w.record.empty() {
			result.Verdict, result.Cause = spec.Skip, spec.NotApplicable
			result.Reason = "none of its rows is asked of this proxier"
		}
		holds := result.Verdict == spec.Pass || result.Verdict == spec.Known
		keep := c.alone() || (r.options.KeepFailed || r.options.Keep) && !holds
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

// guard calls f and returns its error, or the error with which spec.Try or spec.Must ended f. Any other panic becomes a
// HarnessError.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = spec.HarnessErrorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return spec.Catch(f)
}

// notBuilt returns the result if no cluster could be built: a skip if the proxier does not support the configuration.
func notBuilt(err error) spec.Result {
	var cannot *spec.UnusableError
	if errors.As(err, &cannot) {
		return spec.Result{Verdict: spec.Skip, Cause: spec.NotRun, Reason: err.Error()}
	}
	return verdictOf(err)
}

// verdictOf returns Pass for nil, Skip for a machine that cannot judge, Broken for a fault of the harness or an
// interrupted run, and Fail for other errors.
func verdictOf(err error) spec.Result {
	var fault *spec.HarnessError
	switch {
	case err == nil:
		return spec.Result{Verdict: spec.Pass}
	case isNotRun(err):
		return spec.Result{Verdict: spec.Skip, Cause: spec.NotRun, Reason: err.Error()}
	case errors.As(err, &fault), errors.Is(err, context.Canceled):
		return spec.Result{Verdict: spec.Broken, Reason: err.Error()}
	default:
		return spec.Result{Verdict: spec.Fail, Reason: err.Error()}
	}
}

// isNotRun reports whether the error is a NotRunError alone. One that is joined with other errors hides none of them.
func isNotRun(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) { // nil for joined errors
		if _, ok := err.(*spec.NotRunError); ok {
			return true
		}
	}
	return false
}

func (c *Cell) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
