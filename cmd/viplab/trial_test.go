// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// A program that an interrupt of the whole process group has ended is judged once this process knows of the interrupt.
func TestAnInterruptOfTheGroupIsAwaited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		waits  bool
	}{{"kill -INT $$", true}, {"kill -TERM $$", true}, {"kill -KILL $$", false}, {"exit 1", false}} {
		ended := exec.CommandContext(t.Context(), "sh", "-c", c.script)
		if err := ended.Run(); err == nil {
			t.Fatalf("%s: the program has ended by itself", c.script)
		}
		ctx, cancel := context.WithCancel(t.Context())
		interrupt := time.AfterFunc(500*time.Millisecond, cancel)
		awaitInterrupt(ctx, ended.ProcessState)
		if waited := ctx.Err() != nil; waited != c.waits {
			t.Errorf("%s: it waited for the interrupt: %t, want %t", c.script, waited, c.waits)
		}
		interrupt.Stop()
		cancel()
	}
}
