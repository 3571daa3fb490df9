// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitQuiet(t *testing.T) {
	for name, c := range map[string]struct {
		arrivals   time.Duration // the last one, after the start; one comes each tenth of a second until then
		ends, want time.Duration // of ctx
	}{
		"nobody comes":       {0, time.Minute, quiet},
		"some come":          {1500 * time.Millisecond, time.Minute, 1500*time.Millisecond + quiet},
		"they never stop":    {time.Hour, time.Minute, many * quiet},
		"it has to end":      {time.Hour, 2 * time.Second, 2 * time.Second},
		"it has to end soon": {0, time.Millisecond, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				awaitQuiet(ctx, quiet, func() time.Time {
					return began.Add(min(time.Since(began).Truncate(time.Second/10), c.arrivals))
				})
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}
