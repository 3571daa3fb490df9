// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"time"
)

// A question that no event announces is asked again after firstPause, then twice as long, up to lastPause.
const firstPause, lastPause = 5 * time.Millisecond, 250 * time.Millisecond

// Await asks until the answer is nil: at once, and again on each event. Without events (nil) it asks again after a
// while, which grows from 5 ms to 250 ms; it does so after every 250 ms with events too, in case one was missed. When
// the context ends, the error is the last answer, with the number of tries and the time they took. One that the end of
// the context has cut short is no answer, unless there is no other.
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
