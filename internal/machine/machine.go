// SPDX-License-Identifier: Apache-2.0

// Package machine stretches limits on slow machines.
//
// The limits guard against hangs, and are generous. But a proxier may start programs: the ipvs mode of kube-proxy
// starts some sixty for each family at every change. Each takes a millisecond on a CPU of its own and a tenth of a
// second on an emulated one. A limit for both would delay the verdict on a hanging proxier by a quarter of an hour.
package machine

import (
	"math"
	"os/exec"
	"sync"
	"time"
)

// usual is how long a program takes to start on a machine that is not slow, however busy; most take a tenth of it.
const usual = 10 * time.Millisecond

// most is how far a limit is stretched.
const most = 10

// Limit returns the limit, or a longer one if programs start slowly here.
func Limit(limit time.Duration) time.Duration { return stretch(limit, start()) }

// Slow reports whether limits are stretched here. Then doing things concurrently only makes each of them slower.
func Slow() bool { return start() > usual }

// stretch makes a limit longer by as much as a start took longer than usual.
func stretch(limit, start time.Duration) time.Duration {
	return time.Duration(float64(limit) * min(max(float64(start)/float64(usual), 1), most))
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
