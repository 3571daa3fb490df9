// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/hosttest"
)

// patience is for the slowest machine: a lab under software emulation.
const patience = 2 * time.Minute

func TestTheMachineIsUntouched(t *testing.T) {
	for _, c := range []struct {
		name, helper string
		ending       hosttest.Ending
	}{
		{"after a normal run", "lab", hosttest.Ending{}},
		{"after Ctrl-C", "labs", hosttest.Ending{Signal: unix.SIGINT, After: 200 * time.Millisecond}},
		{"after SIGTERM", "labs", hosttest.Ending{Signal: unix.SIGTERM, After: 200 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, c.helper, c.ending) })
	}
}

// The moments are spread over the start of the three processes and the building of labs. A failed one says which.
func TestTheMachineIsUntouchedAfterAKill(t *testing.T) {
	const moments, within = 50, 150 * time.Millisecond
	for _, victim := range []hosttest.Victim{hosttest.Supervisor, hosttest.Init, hosttest.Program} {
		t.Run(fmt.Sprint("of the ", victim), func(t *testing.T) {
			var longest time.Duration
			for range moments {
				ending := hosttest.Ending{Signal: syscall.SIGKILL, Victim: victim, After: rand.N(within)}
				longest = max(longest, check(t, "labs", ending))
			}
			t.Logf("%d kills within %v; the machine was clean at most %v later", moments, within, longest)
		})
	}
}

func check(t *testing.T, name string, ending hosttest.Ending) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := helper(t, name)
	cmd.Stderr = os.Stderr
	took, err := hosttest.Check(ctx, cmd, ending)
	if err != nil {
		t.Fatal(err)
	}
	return took
}
