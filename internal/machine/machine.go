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
func Limit(limit time.Duration) time.Duration {
	took, _ := start()
	return stretch(limit, took, runtime.NumCPU())
}

// slow is the processor time that a program takes to start at least where the machine is emulated. Virtual machines
// whose kernel handles page faults in software need 4 ms.
const slow = 10 * time.Millisecond

// Slow reports whether doing things concurrently here only makes each of them slower. Other programs that are busy at
// the moment do not make a machine slow.
func Slow() bool {
	_, used := start()
	return isSlow(used, runtime.NumCPU())
}

func isSlow(used time.Duration, processors int) bool { return used > slow || processors == 1 }

// stretch makes a limit longer by as much as a start took longer than usual, and where the programs of a lab's three
// nodes share one processor.
func stretch(limit, start time.Duration, processors int) time.Duration {
	factor := max(float64(start)/float64(usual), 1) * max(2/float64(processors), 1)
	return time.Duration(float64(limit) * min(factor, most))
}

// start measures, once, how long a program takes to start, the best of five, and how much processor time each of them
// takes. Zero means that nothing is known.
var start = sync.OnceValues(func() (took, used time.Duration) {
	const tries = 5
	took = math.MaxInt64
	for range tries {
		program := exec.Command("true")
		began := time.Now()
		if err := program.Run(); err != nil {
			return 0, 0
		}
		took = min(took, time.Since(began))
		used += program.ProcessState.UserTime() + program.ProcessState.SystemTime()
	}
	return took, used / tries // a kernel may count in ticks of 10 ms
})
