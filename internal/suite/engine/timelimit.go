// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/machine"
)

// timeLimit is how long a program may take for a change, or to end.
type timeLimit struct {
	time.Duration
	// exact limits do not grow while the machine is busy.
	exact bool
}

// applyLimit is the limit within which a node must converge before its program is given up for good. It only detects
// hangs; slow and busy machines get more (see package machine).
const applyLimit = 2 * time.Minute

// timeLimitOf returns the limit that the options set, or applyLimit.
func timeLimitOf(o Options) timeLimit {
	if o.ApplyLimit != 0 {
		return timeLimit{o.ApplyLimit, true}
	}
	return timeLimit{machine.Limit(applyLimit), false}
}

// atMost returns an exact limit of the given length, or l if that is shorter.
func (l timeLimit) atMost(d time.Duration) timeLimit {
	if l.Duration <= d {
		return l
	}
	return timeLimit{d, true}
}

// context returns a context that ends when the limit is over.
func (l timeLimit) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.exact {
		return context.WithTimeoutCause(ctx, l.Duration, fmt.Errorf("%s are over", l.Round(time.Second)))
	}
	return machine.WithBusyTimeout(ctx, l.Duration)
}
