// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// trialLimit is the time within which a program must converge for the first time, in a cluster without Services. A
// program that takes longer does not work, and otherwise each of hundreds of scenarios would wait for it.
const trialLimit = 30 * time.Second

// trial is the first convergence of a proxier in a run. One cluster tries it; the others wait for the result before
// they run scenarios.
type trial struct {
	done   chan struct{}
	failed string        // the scenario that reports why the program does not work; empty if it works
	took   time.Duration // 0 if no trial was made
}

func newTrial() *trial { return &trial{done: make(chan struct{})} }

// end ends the trial, with the scenario that reports a failure.
func (t *trial) end(failed string) {
	t.failed = failed
	close(t.done)
}

// passed waits for the result and reports whether the program works.
func (t *trial) passed() bool {
	<-t.done
	return t.failed == ""
}

// try waits until the program has converged on all nodes of a cluster. err is not nil if the cluster could not be
// built. If the program does not converge, the first cell fails with the reason and the evidence.
func (r *Run) try(ctx context.Context, t *trial, env *environment, err error, first *Cell) {
	if err != nil {
		result := notBuilt(err)
		if result.Verdict != spec.Fail {
			t.end("")
			return
		}
		r.end(first, result)
		t.end(first.Scenario.ID)
		return
	}
	usual := env.applyLimit
	env.applyLimit = usual.atMost(machine.Limit(trialLimit))
	began := time.Now()
	err = env.settle(ctx, env.Store().Snapshot().Revision)
	t.took = time.Since(began)
	env.applyLimit = usual
	if !errors.As(err, new(notReadyError)) {
		t.end("")
		return
	}
	result := r.runCell(ctx, env, first)
	result.NotReady = false // it has never been ready
	r.end(first, result)
	t.end(first.Scenario.ID)
}

// giveUp ends the cells of a program that does not work.
func (r *Run) giveUp(t *trial, cells []*Cell) {
	for _, c := range cells {
		r.leave(c, fmt.Sprintf("%s does not work here, as %s shows", c.Proxier.Name(), t.failed))
	}
}

// leave ends a cell as not run, unless it has ended.
func (r *Run) leave(c *Cell, why string) {
	if !c.ended() {
		r.end(c, spec.Result{Verdict: spec.Skip, Cause: spec.NotRun, Reason: why})
	}
}

// tryOverlay looks whether the kernel can do the overlay. If it cannot, no cluster can be built: the first cell is
// broken and says why, and the others are not run.
func (r *Run) tryOverlay(ctx context.Context) {
	err := lab.OverlaySupported(r.options.Overlay, r.options.Stack)
	if err == nil || ctx.Err() != nil {
		return
	}
	first := ""
	for _, c := range r.cells {
		switch {
		case c.ended():
		case first == "":
			first = c.Scenario.ID
			r.end(c, verdictOf(spec.HarnessErrorf("no cluster can be built: %w", err)))
		default:
			r.leave(c, fmt.Sprintf("no cluster can be built here, as %s shows", first))
		}
	}
}
