// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// crowded is how many programs for each processor want to run before a limit is stretched.
const crowded = 4

// Busy returns the limit, or a longer one if many more programs want to run here than there are processors. Then even
// what takes a moment may wait for seconds until its turn comes.
func Busy(limit time.Duration) time.Duration {
	return crowd(limit, recent.load(time.Now())/float64(runtime.NumCPU()))
}

// crowd makes a limit longer by as much as the programs for each processor are more than crowded.
func crowd(limit time.Duration, programs float64) time.Duration {
	return time.Duration(float64(limit) * min(max(programs/crowded, 1), most))
}

// recent is the load that was read last.
var recent loads

type loads struct {
	mu    sync.Mutex
	until time.Time
	value float64
}

// load returns how many programs have run or wanted to run in the last minute (proc_loadavg(5)). It reads that at most
// once a second. It returns 0 if the kernel does not tell.
func (l *loads) load(now time.Time) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.until) {
		return l.value
	}
	l.until, l.value = now.Add(time.Second), 0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &l.value) // what it does not understand counts as 0
	}
	return l.value
}
