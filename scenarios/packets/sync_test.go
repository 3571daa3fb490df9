// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"
	"testing"
	"time"
)

func TestTooFastForPauses(t *testing.T) {
	const slow, fast = 1040 * time.Millisecond, 60 * time.Millisecond
	for _, c := range []struct {
		name string
		took []time.Duration
		want bool
	}{
		{"a pause before each", slices.Repeat([]time.Duration{slow}, 10), false},
		{"two at once after each pause", slices.Repeat([]time.Duration{fast, 2*time.Second - fast}, 5), false},
		{"two at once, and a silence before",
			append([]time.Duration{fast, fast}, slices.Repeat([]time.Duration{slow}, 8)...), false},
		{"syncs as long as a pause", slices.Repeat([]time.Duration{900 * time.Millisecond}, 10), false},
		{"a pause of 0.7 s before each", slices.Repeat([]time.Duration{700 * time.Millisecond}, inARow), false},
		{"no pause", slices.Repeat([]time.Duration{fast}, 10), true},
		{"long syncs", slices.Repeat([]time.Duration{400 * time.Millisecond, 760 * time.Millisecond}, 5), true},
		{"no pause, and a machine that is busy now and then",
			append([]time.Duration{5 * time.Second, fast, fast, 3 * time.Second}, fast, fast, fast, fast), true},
	} {
		if got := tooFastForPauses(c.took); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
