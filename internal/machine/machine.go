// SPDX-License-Identifier: Apache-2.0

// Package machine stretches limits on slow machines.
//
// The limits in question guard against hangs, and are generous. But what they wait for may be the work of a proxier
// that starts programs: the ipvs mode of kube-proxy starts some sixty of them for each family at every change. A
// program starts in a millisecond on a processor of its own and in a tenth of a second in a software-emulated one. A
// limit that suits both would make everybody wait a quarter of an hour for the verdict on a proxier that hangs.
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
