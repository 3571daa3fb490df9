// SPDX-License-Identifier: Apache-2.0

// Command viplab builds a Kubernetes cluster's network out of Linux namespaces and tests implementations of Service
// virtual IPs and of NetworkPolicy in it with real packets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/prove/faults"
)

// processors is how many processors viplab may use.
var processors = runtime.GOMAXPROCS(0)

func main() {
	faults.Shim()
	// The heap may grow to five times the live memory before a collection. A run of the catalogue then takes 5% less
	// processor time, and 290 MiB of memory instead of 150.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// A thread that waits in the kernel, as for the lock on all network configuration, counts as one that runs Go code
	// until the runtime notices, up to 10 ms later. With two more, a processor is idle less often, and a run of the
	// catalogue takes 5% less time.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors + 2)
	}
	// The first signal cancels the context, so that a command can clean up. In a sandbox, the second Ctrl-C ends the
	// command from outside. Signals stay caught until the exit: one that came in between would end the program instead,
	// and its exit code would be lost.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	os.Exit(int(conclude(newRoot().ExecuteContext(ctx))))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "viplab",
		Short:         "A lab for Kubernetes Services: their virtual IPs, proved with real packets",
		Version:       version(),
		SilenceUsage:  true, // an error prints no usage
		SilenceErrors: true, // conclude prints it, once
	}
	root.AddCommand(newConform(), newNetpol(), newE2e(), newProve(), newTrial(), newCatalogue(), newScenario(), newRules(),
		newFeatures(), newMerge(), newCompare(), newSite(), newMatrix(), newDoctor(), newVersion(), newMan())
	root.AddCommand(newUp(), newHold(), newDown(), newLs(), newStatus(), newSwitch(), newApply(), newDelete(), newGet(),
		newExec(), newLogs(), newProbe(), newTrace(), newConntrack(), newCapture(), newLearn())
	explainArgs(root)
	return root
}

// explainArgs adds its usage to a command's error for a wrong number of arguments.
func explainArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil && !strings.HasPrefix(err.Error(), "unknown command") {
				err = fmt.Errorf("%w\nusage: %s", err, cmd.UseLine())
			}
			return err
		}
	}
	for _, sub := range cmd.Commands() {
		explainArgs(sub)
	}
}

func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

// exitCode is an error without a message that sets the exit code.
type exitCode int

// exitWith returns an error that sets the exit code, or nil for 0.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// conclude prints an error and returns the exit code: that of an exitCode, else 2.
func conclude(err error) exitCode {
	if err == nil {
		return 0
	}
	if code := exitCode(0); errors.As(err, &code) {
		return code
	}
	fmt.Fprintln(os.Stderr, "viplab:", err)
	return 2
}
