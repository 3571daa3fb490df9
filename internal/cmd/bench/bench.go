// SPDX-License-Identifier: Apache-2.0

// Package bench is what the benchmark programs share.
package bench

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

// Main runs a benchmark until it ends or is interrupted, and exits with 1 if it fails.
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// Median returns the median of times, and sorts them. It is zero for none.
func Median(times []time.Duration) time.Duration { return Percentile(times, 50) }

// Percentile returns a percentile of times, and sorts them. It is zero for none.
func Percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)*percent/100]
}

// MedianMS returns the median of times in milliseconds, and sorts them.
func MedianMS(times []time.Duration) float64 { return Milliseconds(Median(times)) }

// Milliseconds returns a time in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Microseconds returns a time in microseconds.
func Microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
