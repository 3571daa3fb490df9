// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// probePause is the pause between two probes of a row that somebody waits for, so that a hundred of them neither take
// longer than what they watch nor leave it without a processor.
const probePause = 2 * time.Millisecond

// probeEvery is how often one of the rows is probed while nobody waits for them: often enough to meet rules that are
// torn for some milliseconds at each of several changes, and seldom enough to leave the processor to whoever makes the
// changes.
const probeEvery = 5 * time.Millisecond

// beside is what goes on while something else does. It implements spec.Traffic.
type beside struct {
	world  *world
	probes []*probed
	rounds []atomic.Int64 // of each probe
	asked  []atomic.Int64 // how many rounds of each probe somebody has waited for, or does

	mu     sync.Mutex
	moved  chan struct{} // closed and replaced whenever a round is over
	hurry  chan struct{} // closed and replaced whenever somebody begins to wait
	broken bool          // a row has failed: there is nothing more to wait for
}

// During probes rows over and over while f runs.
func (w *world) During(ctx context.Context, rows []spec.Row, f func(context.Context, spec.Traffic) error) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	b := &beside{world: w, probes: w.expand(rows), moved: make(chan struct{}), hurry: make(chan struct{})}
	b.rounds, b.asked = make([]atomic.Int64, len(b.probes)), make([]atomic.Int64, len(b.probes))
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range b.probes {
		wg.Go(func() { b.goOn(ctx, i, over) })
	}
	err := b.Rounds(ctx, 1) // nothing begins before traffic flows
	if err == nil {
		err = f(ctx, b)
	}
	close(over)
	wg.Wait()
	facts, broken := w.facts()
	if broken != nil {
		return errors.Join(err, &spec.HarnessError{Err: broken})
	}
	return errors.Join(w.judge(b.probes, facts), err, w.doubled(b.probes))
}

// goOn probes one row until it is over.
func (b *beside) goOn(ctx context.Context, i int, over <-chan struct{}) {
	p := b.probes[i]
	for unwanted := 0; ; {
		seen, err := b.world.probeRow(ctx, p.row, p.family)
		p.seen = append(p.seen, seen...)
		for _, o := range seen {
			if !p.row.Want.Allows(o.Outcome) {
				unwanted++
			}
		}
		p.fault = err
		b.roundIsOver(i, err != nil || unwanted > 0)
		if err != nil || unwanted >= unwantedLimit || !b.pause(i, over) {
			return
		}
	}
}

// pause returns when it is time for the next probe of a row, or false when all is over.
func (b *beside) pause(i int, over <-chan struct{}) bool {
	for began := time.Now(); ; {
		b.mu.Lock()
		hurry := b.hurry
		b.mu.Unlock()
		length := probeEvery * time.Duration(len(b.probes))
		if b.rounds[i].Load() < b.asked[i].Load() {
			length, hurry = probePause, nil
		}
		select {
		case <-over:
			return false
		case <-time.After(time.Until(began.Add(length))):
			return true
		case <-hurry:
		}
	}
}

func (b *beside) roundIsOver(i int, failed bool) {
	b.rounds[i].Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = b.broken || failed
	close(b.moved)
	b.moved = make(chan struct{})
}

// Rounds implements spec.Traffic.
func (b *beside) Rounds(ctx context.Context, n int) error {
	until := make([]int64, len(b.rounds))
	for i := range b.rounds {
		until[i] = b.rounds[i].Load() + int64(n)
		b.asked[i].Store(until[i])
	}
	b.mu.Lock()
	close(b.hurry)
	b.hurry = make(chan struct{})
	b.mu.Unlock()
	for {
		b.mu.Lock()
		moved, broken := b.moved, b.broken
		b.mu.Unlock()
		if broken || b.reached(until) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for traffic: %w", context.Cause(ctx))
		}
	}
}

func (b *beside) reached(until []int64) bool {
	for i := range b.rounds {
		if b.rounds[i].Load() < until[i] {
			return false
		}
	}
	return true
}

// doubled says which requests have reached servers more than once.
func (w *world) doubled(probes []*probed) error {
	times := map[string]int{}
	for _, s := range w.allServers() {
		for _, x := range s.Seen() {
			times[x.Nonce]++
		}
	}
	var errs []error
	for _, p := range probes {
		for _, o := range p.seen {
			if n := times[o.Nonce]; o.Outcome == traffic.Reply && n > 1 {
				errs = append(errs, fmt.Errorf("%s: request %s has reached servers %d times", p.row.Probe(p.family), o.Nonce, n))
			}
		}
	}
	return errors.Join(errs...)
}
