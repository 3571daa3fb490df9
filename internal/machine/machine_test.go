// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"
)

func TestStretch(t *testing.T) {
	for _, c := range []struct {
		start      time.Duration
		processors int
		want       time.Duration
	}{
		{0, 2, time.Minute},
		{time.Millisecond, 2, time.Minute},
		{usual, 64, time.Minute},
		{3 * usual, 2, 3 * time.Minute},
		{usual, 1, 2 * time.Minute},
		{3 * usual, 1, 6 * time.Minute},
		{time.Hour, 1, most * time.Minute},
	} {
		if got := stretch(time.Minute, c.start, c.processors); got != c.want {
			t.Errorf("a start of %v with %d processors: %v, want %v", c.start, c.processors, got, c.want)
		}
	}
}

func TestAStartIsMeasured(t *testing.T) {
	if start() <= 0 {
		t.Error("a program starts in no time")
	}
	t.Setenv("PATH", "/nowhere")
	if Limit(time.Minute) < time.Minute {
		t.Error("a limit got shorter")
	}
}
