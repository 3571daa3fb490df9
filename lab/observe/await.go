// SPDX-License-Identifier: Apache-2.0

// Package observe shows what happens in a network namespace: conntrack entries and their events, packets on devices,
// packets that rules log, and generations of the nftables ruleset. Await waits for a state.
package observe

import (
	"context"
	"fmt"
	"time"
)

// Without events, Await retries after firstPause, then after twice as long each time, up to lastPause.
const firstPause, lastPause = 5 * time.Millisecond, 250 * time.Millisecond

// Await calls ask until it returns nil: at once, and again on each event. Without events (nil) it retries after a pause
// that grows from 5 ms to 250 ms; with events it also retries every 250 ms, in case one was missed. When the context
// ends, Await returns the last error with the number of tries and the time they took. It ignores an error that the end
// of the context caused, unless it has no other.
func Await(ctx context.Context, events <-chan struct{}, ask func(context.Context) error) error {
	start := time.Now()
	pause := firstPause
	if events != nil {
		pause = lastPause
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var answer error
	for tries := 1; ; tries++ {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if answer == nil || ctx.Err() == nil {
			answer = err
		}
		select {
		case _, open := <-events:
			if !open {
				events = nil // go on by the clock
			}
		case <-timer.C:
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			return fmt.Errorf("%w (%d tries in %v: %v)",
				answer, tries, time.Since(start).Round(time.Millisecond), context.Cause(ctx))
		}
		timer.Reset(pause)
	}
}
