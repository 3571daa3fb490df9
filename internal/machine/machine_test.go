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

func TestSlow(t *testing.T) {
	for _, c := range []struct {
		used       time.Duration
		processors int
		want       bool
	}{
		{0, 2, false}, {usual, 2, false}, {slow, 2, false}, {slow + 1, 2, true}, {100 * time.Millisecond, 64, true},
		{usual, 1, true},
	} {
		if got := isSlow(c.used, c.processors); got != c.want {
			t.Errorf("a start takes %v of %d processors: slow is %t, want %t", c.used, c.processors, got, c.want)
		}
	}
}

func TestAStartIsMeasured(t *testing.T) {
	if took, used := start(); took <= 0 || used <= 0 {
		t.Errorf("a program starts in %v, and needs %v of a processor", took, used)
	}
	t.Setenv("PATH", "/nowhere")
	if Limit(time.Minute) < time.Minute {
		t.Error("a limit got shorter")
	}
}
