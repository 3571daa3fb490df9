// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/viplab/viplab/internal/machine"
)

// TestTimeLimits: the usual limit grows while the machine is busy; one that was chosen or lowered does not.
func TestTimeLimits(t *testing.T) {
	usual, chosen := timeLimitOf(Options{}), timeLimitOf(Options{ApplyLimit: time.Minute})
	short := machine.Limit(trialLimit)
	for _, c := range []struct {
		name      string
		got, want timeLimit
	}{
		{"usual", usual, timeLimit{machine.Limit(applyLimit), false}},
		{"chosen", chosen, timeLimit{time.Minute, true}},
		{"lowered", usual.atMost(short), timeLimit{short, true}},
		{"a lower one is chosen", chosen.atMost(time.Hour), chosen},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, l := range []timeLimit{chosen, usual} {
			ctx, cancel := l.context(t.Context())
			<-ctx.Done()
			cancel()
			if took := time.Since(began); took < l.Duration || l.exact && took > l.Duration {
				t.Errorf("%+v lasts %s", l, took)
			}
			began = time.Now()
		}
	})
}
