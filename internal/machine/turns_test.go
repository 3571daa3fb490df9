// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os/exec"
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
