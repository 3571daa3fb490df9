// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"
)

func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		programs float64
		want     time.Duration
	}{{0, time.Minute}, {1, time.Minute}, {4, time.Minute}, {30, 450 * time.Second}, {1000, most * time.Minute}} {
		if got := crowd(time.Minute, c.programs); got != c.want {
			t.Errorf("%v programs: %v, want %v", c.programs, got, c.want)
		}
	}
}

func TestTheLoadIsReadOnceASecond(t *testing.T) {
	var l loads
	now := time.Now()
	l.load(now)
	if l.value < 0 || l.until != now.Add(time.Second) {
		t.Errorf("load %v until %v, now is %v", l.value, l.until, now)
	}
	l.value = -1
	if got := l.load(now.Add(time.Second / 2)); got != -1 {
		t.Errorf("the load is read again after half a second: %v", got)
	}
	if got := l.load(now.Add(time.Second)); got < 0 {
		t.Errorf("the load is not read again after a second: %v", got)
	}
}
