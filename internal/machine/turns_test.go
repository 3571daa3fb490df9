// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithTimeoutEndsAfterItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != time.Minute || ctx.Err() != context.DeadlineExceeded {
			t.Errorf("it ended after %v: %v", took, ctx.Err())
		}
	})
}

// Each part of the limit is as long as the load demands when it begins.
func TestWithBusyTimeoutFollowsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := func(programs int) {
			recent.mu.Lock()
			defer recent.mu.Unlock()
			recent.until, recent.value = time.Now().Add(time.Hour), float64(programs*runtime.NumCPU())
		}
		t.Cleanup(func() { recent = loads{} })
		crowd(1)
		ctx, cancel := WithBusyTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		<-time.After(9*time.Second + time.Second/2) // in the tenth part of 20
		crowd(3 * crowded)
		<-ctx.Done()
		if took, want := time.Since(began), 40*time.Second; took != want {
			t.Errorf("it ended after %v, want %v: ten parts of one second, and ten of three", took, want)
		}
		if err := context.Cause(ctx); ctx.Err() != context.DeadlineExceeded || err.Error() != "40s are over" {
			t.Errorf("%v, because %v", ctx.Err(), err)
		}
	})
}

func TestWithTimeoutIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := WithTimeout(t.Context(), time.Minute)
		<-time.After(time.Second)
		cancel()
		<-time.After(time.Hour)
		if ctx.Err() != context.Canceled {
			t.Error(ctx.Err())
		}
	})
}

// A program that stood still sees what has arrived meanwhile.
func TestWithTimeoutCountsTurns(t *testing.T) {
	ctx, cancel := WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if err := exec.Command("sh", "-c", "kill -STOP $PPID; sleep 1; kill -CONT $PPID").Run(); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("the time was over when the program had its first turn")
	}
	<-ctx.Done()
}
