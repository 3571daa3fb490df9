// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// agent keeps one program on one node up to date, the proxier or the enforcer. Whenever the cluster's state changes, it
// applies the newest state. It batches the changes that arrive during an Apply and shortly after.
type agent struct {
	role     role
	node     string
	instance spec.Instance
	store    *store.Store
	demand   *demand
	gate     <-chan struct{} // Apply is not called until it is closed; nil means no gate
	begin    func()          // begins to apply states
	cancel   context.CancelFunc
	done     chan struct{}
	gone     bool // the program has ended; used only by the caller that ends it

	applying chan struct{} // holds an element during Apply, and while changes are withheld

	mu      sync.Mutex
	applied uint64 // newest revision to which the node has converged
	failure error  // of the newest attempt; nil once an attempt succeeds
	tried   uint64 // newest revision that was attempted
	stuck   error  // set once the program has been given up
	changed chan struct{}
}

// startAgent starts the program on the node. It applies states once the caller has called begin.
func startAgent(ctx context.Context, role role, program spec.Proxier, node spec.Node, d *demand) (*agent, error) {
	var instance spec.Instance
	err := withoutPanic(func() (err error) {
		if instance, err = program.Start(ctx, node); err == nil && instance == nil {
			err = errors.New("Start returns neither an instance nor an error")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: start %s %s: %w", node.Name, role, program.Name(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &agent{
		role: role, node: node.Name, instance: instance, store: node.Store, demand: d, gate: node.EndpointsGate,
		cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}), applying: make(chan struct{}, 1),
	}
	a.begin = sync.OnceFunc(func() { go a.run(ctx) })
	return a, nil
}

// The time from the beginning of one Apply to that of the next is three times as long as the Apply, within limits.
// Scenarios that share a cluster change it constantly. A proxier that starts programs with every Apply would be busy
// all the time, and with it the processors that the scenarios need. (kube-proxy's minSyncPeriod is one second.) But an
// Apply that half of the scenarios wait for begins at once: few more changes would join it, and processors are free.
const (
	applyEvery = 150 * time.Millisecond // at least
	applyPause = 500 * time.Millisecond // at most
)

// pauseAfter returns how long to wait after an Apply that took this long.
func pauseAfter(took time.Duration) time.Duration {
	return max(min(max(3*took, applyEvery), applyPause)-took, 0)
}

// retryAfter is the pause before a retry of a failed Apply if there is no newer state.
const retryAfter = 200 * time.Millisecond

func (a *agent) run(ctx context.Context) {
	defer close(a.done)
	if a.gate != nil {
		select {
		case <-a.gate:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		select {
		case a.applying <- struct{}{}:
		case <-ctx.Done():
			return
		}
		snapshot := a.store.Snapshot()
		began := time.Now()
		err := a.apply(ctx, snapshot)
		pause := time.After(pauseAfter(time.Since(began)))
		<-a.applying
		if ctx.Err() != nil {
			return
		}
		a.record(snapshot.Revision, err)
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
		case <-a.store.Changed(snapshot.Revision):
		case <-retry:
		}
		a.pause(ctx, snapshot.Revision, pause)
	}
}

// pause returns when the pause after an Apply is over, or when half of the scenarios wait for a newer revision.
func (a *agent) pause(ctx context.Context, applied uint64, over <-chan time.Time) {
	for {
		demanded, changed := a.demand.exceeds(applied)
		if demanded {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-changed:
		}
	}
}

// withhold keeps changes of the cluster from the program until the caller calls resume.
func (a *agent) withhold(ctx context.Context) (resume func(), err error) {
	select {
	case a.applying <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	watch := a.instance.BreakWatches()
	return sync.OnceFunc(func() { watch(); <-a.applying }), nil
}

func (a *agent) apply(ctx context.Context, snapshot *store.Snapshot) error {
	return withoutPanic(func() error { return a.instance.Apply(ctx, snapshot) })
}

func (a *agent) dump(ctx context.Context, w io.Writer) error {
	return withoutPanic(func() error { return a.instance.Dump(ctx, w) })
}

// withoutPanic calls a method of a program and returns a panic as an error.
func withoutPanic(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}

func (a *agent) record(revision uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried, a.failure = revision, err
	if err == nil {
		a.applied = revision
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait waits until the node has converged to the state of the revision or a newer one. It returns an error if the
// program fails on such a state three times in a row, or does not finish in time. In the latter case the program is
// given up, and every later wait fails at once.
func (a *agent) wait(ctx context.Context, revision uint64, limit timeLimit) error {
	inTime, cancel := limit.context(ctx)
	defer cancel()
	failures := 0
	for {
		a.mu.Lock()
		applied, tried, failure, stuck, changed := a.applied, a.tried, a.failure, a.stuck, a.changed
		a.mu.Unlock()
		if applied >= revision {
			return nil
		}
		if stuck != nil {
			return stuck
		}
		if failure != nil && tried >= revision {
			if failures++; failures == 3 {
				err := fmt.Errorf("%s: the %s cannot apply the cluster's state: %w", a.node, a.role, failure)
				return notReadyError{err}
			}
		}
		select {
		case <-changed:
		case <-inTime.Done():
			err := fmt.Errorf("%s: the %s has not applied revision %d (it is at %d): %w",
				a.node, a.role, revision, applied, context.Cause(inTime))
			if ctx.Err() != nil {
				return err
			}
			if failure != nil {
				err = fmt.Errorf("%w; its newest attempt: %w", err, failure)
			}
			return a.giveUp(notReadyError{err})
		}
	}
}

func (a *agent) giveUp(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stuck = err
	return err
}

// stopMethod is a way to end an agent: stop, kill or cleanup.
type stopMethod func(a *agent, ctx context.Context, limit timeLimit) error

// stop ends the loop and then the program.
func (a *agent) stop(ctx context.Context, limit timeLimit) error {
	return a.end(ctx, limit, "stop", a.instance.Stop)
}

// kill cancels the loop, also during an Apply, and kills the program.
func (a *agent) kill(ctx context.Context, limit timeLimit) error {
	return a.end(ctx, limit, "kill", a.instance.Kill)
}

// stopOn stops the agent of one node and kills the others: a run of a single scenario judges one stop.
func stopOn(node string) stopMethod {
	return func(a *agent, ctx context.Context, limit timeLimit) error {
		if a.node == node {
			return a.stop(ctx, limit)
		}
		return a.kill(ctx, limit)
	}
}

// cleanup ends the loop and the program, and removes everything that the program programmed.
func (a *agent) cleanup(ctx context.Context, limit timeLimit) error {
	return a.end(ctx, limit, "clean up after", a.instance.Cleanup)
}

// end ends the loop, and then the program in the given way. It does nothing if the agent has already ended. A program
// that does not return is abandoned: it ends with its namespace.
func (a *agent) end(ctx context.Context, limit timeLimit, how string, instance func(context.Context) error) error {
	if a.gone {
		return nil
	}
	a.gone = true
	ctx, cancel := limit.context(ctx)
	defer cancel()
	a.cancel()
	a.begin() // a loop that has not begun ends at once
	ended := make(chan error, 1)
	go func() {
		<-a.done
		ended <- withoutPanic(func() error { return instance(ctx) })
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("not done: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s: %w", a.node, how, a.role, err)
	}
	return nil
}
