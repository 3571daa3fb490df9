// SPDX-License-Identifier: Apache-2.0

// Package machine stretches limits on slow machines.
//
// The limits guard against hangs, and are generous. But a proxier may start programs: the ipvs mode of kube-proxy
// starts some sixty for each family at every change. Each takes a millisecond on a CPU of its own and a tenth of a
// second on an emulated one. A limit for both would delay the verdict on a hanging proxier by minutes.
package machine

import (
	"math"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// usual is how long a program takes to start on a machine that is not slow, however busy; most take half of it.
const usual = 2 * time.Millisecond

// most is how far a limit is stretched.
const most = 10

// Limit returns the limit, or a longer one if programs start slowly here or share one processor.
func Limit(limit time.Duration) time.Duration { return stretch(limit, start(), runtime.NumCPU()) }

// slow is how long a program takes to start at least where the machine is emulated. Virtual machines whose kernel
// handles page faults in software need 4 ms.
const slow = 10 * time.Millisecond

// Slow reports whether doing things concurrently here only makes each of them slower.
func Slow() bool { return start() > slow || runtime.NumCPU() == 1 }

// stretch makes a limit longer by as much as a start took longer than usual, and where the programs of a lab's three
// nodes share one processor.
func stretch(limit, start time.Duration, processors int) time.Duration {
	factor := max(float64(start)/float64(usual), 1) * max(2/float64(processors), 1)
	return time.Duration(float64(limit) * min(factor, most))
}

// start measures, once, how long a program takes to start: the first that starts as usual, or the best of five.
var start = sync.OnceValue(func() time.Duration {
	best := time.Duration(math.MaxInt64)
	for tries := 0; tries < 5 && best > usual; tries++ {
		began := time.Now()
		if err := exec.Command("true").Run(); err != nil {
			return 0 // nothing is known
		}
		best = min(best, time.Since(began))
	}
	return best
})
