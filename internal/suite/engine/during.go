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

// probePause is the pause between two probes of a row while Rounds waits for it. It leaves the processor to the
// observed change, and a hundred probes still end before the change does.
const probePause = 2 * time.Millisecond

// probeEvery is the interval between probes at other times; the rows take turns. It is short enough to detect rules
// that are incomplete for some milliseconds at each of several changes, and long enough to leave the processor to the
// proxier.
const probeEvery = 5 * time.Millisecond

// background probes rows repeatedly while a function runs. It implements spec.Traffic.
type background struct {
	world  *world
	probes []*probed
	rounds []atomic.Int64 // of each probe, so far
	wanted []atomic.Int64 // of each probe, the highest number that Rounds has waited for

	mu      sync.Mutex
	ended   chan struct{} // closed and replaced whenever a round ends
	waiting chan struct{} // closed and replaced whenever Rounds begins to wait
	failed  bool          // a row has failed, so Rounds returns
}

// During implements spec.World: it probes rows repeatedly while f runs.
func (w *world) During(ctx context.Context, rows []spec.Row, f func(context.Context, spec.Traffic) error) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	b := &background{world: w, probes: w.expand(rows), ended: make(chan struct{}), waiting: make(chan struct{})}
	b.rounds, b.wanted = make([]atomic.Int64, len(b.probes)), make([]atomic.Int64, len(b.probes))
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range b.probes {
		wg.Go(func() { b.probeUntil(ctx, i, over) })
	}
	err := b.Rounds(ctx, 1) // f starts only when traffic flows
	if err == nil {
		err = guard(func() error { return f(ctx, b) })
	}
	close(over)
	wg.Wait()
	return errors.Join(w.judge(ctx, b.probes), err, w.checkOnce(b.probes))
}

// probeUntil probes one row until During ends.
func (b *background) probeUntil(ctx context.Context, i int, over <-chan struct{}) {
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
		b.endRound(i, err != nil || unwanted > 0)
		if err != nil || unwanted >= unwantedLimit || !b.pause(i, over) {
			return
		}
	}
}

// pause waits until the next probe of a row is due. It returns false if During ends first.
func (b *background) pause(i int, over <-chan struct{}) bool {
	for began := time.Now(); ; {
		b.mu.Lock()
		waiting := b.waiting
		b.mu.Unlock()
		length := probeEvery * time.Duration(len(b.probes))
		if b.rounds[i].Load() < b.wanted[i].Load() {
			length, waiting = probePause, nil
		}
		select {
		case <-over:
			return false
		case <-time.After(time.Until(began.Add(length))):
			return true
		case <-waiting:
		}
	}
}

func (b *background) endRound(i int, failed bool) {
	b.rounds[i].Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = b.failed || failed
	close(b.ended)
	b.ended = make(chan struct{})
}

// Rounds implements spec.Traffic.
func (b *background) Rounds(ctx context.Context, n int) error {
	until := make([]int64, len(b.rounds))
	for i := range b.rounds {
		until[i] = b.rounds[i].Load() + int64(n)
		b.wanted[i].Store(until[i])
	}
	b.mu.Lock()
	close(b.waiting)
	b.waiting = make(chan struct{})
	b.mu.Unlock()
	for {
		b.mu.Lock()
		ended, failed := b.ended, b.failed
		b.mu.Unlock()
		if failed || b.reached(until) {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("wait for traffic: %w", context.Cause(ctx))
		}
	}
}

func (b *background) reached(until []int64) bool {
	for i := range b.rounds {
		if b.rounds[i].Load() < until[i] {
			return false
		}
	}
	return true
}

// checkOnce returns an error that names the requests which reached servers more than once.
func (w *world) checkOnce(probes []*probed) error {
	times := map[string]int{}
	for _, s := range w.allServers() {
		for _, x := range s.Arrivals() {
			times[x.Nonce]++
		}
	}
	var errs []error
	for _, p := range probes {
		for _, o := range p.seen {
			if n := times[o.Nonce]; o.Outcome == traffic.Reply && n > 1 {
				probe := p.row.Probe(p.family)
				errs = append(errs, fmt.Errorf("%s: request %s has reached servers %d times", probe, o.Nonce, n))
			}
		}
	}
	return errors.Join(errs...)
}
