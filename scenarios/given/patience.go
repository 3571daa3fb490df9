// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/machine"
)

// Patience is how long a scenario waits for what a working proxier lets through at once: 20 s, more on slow machines
// (see pace). It ends the wait for what never comes, and says nothing of how long an answer may take: a machine with
// other work has been seen to take five seconds for it.
func Patience() time.Duration { return machine.Limit(20 * time.Second) }

// InTime is a context that ends with Patience, and then says so.
func InTime(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := Patience()
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s are over", limit))
}
