// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"
)

func TestStretch(t *testing.T) {
	for _, c := range []struct{ start, want time.Duration }{
		{0, time.Minute},
		{time.Millisecond, time.Minute},
		{usual, time.Minute},
		{60 * time.Millisecond, 6 * time.Minute},
		{time.Hour, most * time.Minute},
	} {
		if got := stretch(time.Minute, c.start); got != c.want {
			t.Errorf("a start of %v: %v, want %v", c.start, got, c.want)
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
