// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"math"
	"time"
)

// turns is the number of parts of a limit.
const turns = 20

// WithTimeout is context.WithTimeout for what this program itself has to do in time. The limit has parts, and each
// begins only when the program has noticed the end of the one before. A program that gets no processor for seconds, or
// has thousands of goroutines waiting for one, would otherwise find the time over before it sees an answer that has
// long arrived: Go looks at timers before it looks at sockets. The context has no deadline to read.
func WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	left := turns
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		if left--; left == 0 {
			cancel(context.DeadlineExceeded)
		} else if ctx.Err() == nil {
			timer.Reset(limit / turns)
		}
	})
	timer.Reset(limit / turns)
	return timed{ctx}, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}

// timed is a context whose cause may be that a time is over.
type timed struct{ context.Context }

// Err returns context.DeadlineExceeded for a time that is over, as contexts with a deadline do.
func (c timed) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}
