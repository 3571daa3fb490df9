// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// obeyLimit is the time within which a process must converge if the caller sets no deadline. It only detects hangs;
// slow and busy machines get more (see package machine).
const obeyLimit = 100 * time.Second

// readyLimit is how long a process may take to serve its first canary if no process of the program has served one yet.
// It ends before the trial of a run does, so that the error names the canary. A program that is known to work may take
// as long as for any other change: its first round may be the longest, in a cluster of many Services.
const readyLimit = 25 * time.Second

// secondFamilyLimit is how long a process that serves its first canary in one IP family may take to serve one in the
// other. A process that takes longer serves one family alone, unless the program has served both before: its first
// round may take that long on a busy machine, in a cluster of many Services.
const secondFamilyLimit = 8 * time.Second

// inTime returns a context that ends when the process has had enough time to converge.
func (i *instance) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if i.proxier.proved.Load() {
		return machine.WithBusyTimeout(ctx, machine.Limit(obeyLimit))
	}
	limit := machine.Limit(readyLimit)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s are over", limit.Round(time.Second)))
}

// confirm returns when packets have shown that the process has converged to a state, which is the same since a
// revision, and has ended the round of work in which it did.
func (i *instance) confirm(ctx context.Context, want *store.Snapshot, since uint64) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = i.inTime(ctx)
		defer cancel()
	}
	for {
		p, floor := i.current()
		err := i.confirmLife(ctx, p, want, since, floor)
		if now, _ := i.current(); now != p {
			continue // it was restarted meanwhile: the new process has to converge
		}
		if p.ended() {
			return i.dead(p)
		}
		var fault *spec.HarnessError
		switch {
		case err == nil:
			i.mu.Lock()
			defer i.mu.Unlock()
			i.ready = true
			i.proxier.proved.Store(true)
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return fmt.Errorf("%s: wait for %s: %w", i.node.Name, i.proxier.Name(), context.Cause(ctx))
		case errors.As(err, &fault):
			return err
		}
		return i.late(want.Revision, err)
	}
}

// late returns the error for a process that did not converge in time.
func (i *instance) late(revision uint64, err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	what := "never became ready"
	if i.ready {
		what = fmt.Sprintf("does not obey revision %d", revision)
	}
	return fmt.Errorf("%s: %s %s: %w; %s", i.node.Name, i.proxier.Name(), what, err, i.log.lastLines())
}

// confirmLife waits until every watch of the process has been sent the state, until a canary that is newer answers, and
// for the end of the round that served it. If the process does not log its rounds, confirmLife waits for a second
// canary, made when the first one has answered: only a later round can serve it, and a round begins when the one before
// it has ended. It waits for a second canary, too, if one does not prove that the process has used every change.
func (i *instance) confirmLife(ctx context.Context, p *process, want *store.Snapshot, since uint64,
	floor int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := i.watches.Sent(ctx, want.Revision); err != nil {
		return fmt.Errorf("it does not read its watches: %w", err)
	}
	if err := i.served(ctx, since, floor); err != nil {
		return err
	}
	logged := p.tellsRounds()
	if !logged || !i.inStep(want) {
		if err := i.served(ctx, since, i.cluster.canaries.newest()); err != nil {
			return err
		}
	}
	if !logged {
		return nil
	}
	return p.rounds.over(ctx)
}

// inStep reports whether one canary proves that the process has used every change since the newest confirmed state. A
// canary is a Service and an EndpointSlice, and the API delivers these in order. A process may be slower to use what it
// has been sent of other kinds.
func (i *instance) inStep(want *store.Snapshot) bool {
	return i.obeyed != nil && sameList(i.obeyed.Nodes, want.Nodes) &&
		sameList(i.obeyed.NetworkPolicies, want.NetworkPolicies)
}

// served returns when a canary is served that is newer than a revision and than the canary numbered older.
func (i *instance) served(ctx context.Context, revision uint64, older int) error {
	g, err := i.cluster.canaries.acquire(revision, older)
	if err != nil {
		return err
	}
	defer i.cluster.canaries.release(g)
	return i.await(ctx, g)
}

// await returns when the canary is served. Each retry waits longer for an answer, because a proxier that relays through
// a process of its own may be slow to answer.
func (i *instance) await(ctx context.Context, g *generation) error {
	began := time.Now()
	var answered []lab.Family
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	return observe.Await(ctx, i.changes, func(ctx context.Context) error {
		err := g.ask(ctx, i.node, traffic.Probe{Patience: time.Since(began) / 8}, &answered)
		limit := machine.Busy(machine.Limit(secondFamilyLimit))
		if i.halfReadyFor(len(answered) > 0 && err != nil) > limit {
			giveUp(fmt.Errorf("the other family has answered for %s", limit.Round(time.Second)))
		}
		return err
	})
}

// halfReadyFor returns for how long canaries have been answered in some families alone, before the program first served
// one in all. It is zero if half is false.
func (i *instance) halfReadyFor(half bool) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case !half || i.proxier.proved.Load():
		i.half = time.Time{}
	case i.half.IsZero():
		i.half = time.Now()
	default:
		return time.Since(i.half)
	}
	return 0
}
