// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
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
	return inTurns(ctx, func() time.Duration { return limit / turns })
}

// WithBusyTimeout is WithTimeout for what other programs have to do in time. The load may grow while they work, so each
// part of the limit is longer if the machine is busy when it begins (see Busy). The cause of the context says how long
// it lasted.
func WithBusyTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return inTurns(ctx, func() time.Duration { return Busy(limit / turns) })
}

// inTurns returns a context that ends after as many parts of a limit as there are turns. The function turn returns the
// length of the next part.
func inTurns(ctx context.Context, turn func() time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := time.Now()
	left := turns
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		if left--; left == 0 {
			cancel(overError{time.Since(began)})
		} else if ctx.Err() == nil {
			timer.Reset(turn())
		}
	})
	timer.Reset(turn())
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
	if err != nil && errors.Is(context.Cause(c.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// overError says that a time is over. It is a context.DeadlineExceeded.
type overError struct{ took time.Duration }

func (e overError) Error() string {
	unit := time.Millisecond
	if e.took >= 10*time.Second {
		unit = time.Second
	}
	return fmt.Sprintf("%s are over", e.took.Round(unit))
}

func (overError) Is(target error) bool { return target == context.DeadlineExceeded }
