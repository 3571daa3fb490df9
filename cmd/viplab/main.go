// SPDX-License-Identifier: Apache-2.0

// Command viplab builds a Kubernetes cluster's network out of Linux namespaces and proves with real packets what
// implementations of Service virtual IPs do in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/prove/faults"
)

func main() {
	faults.Shim()
	// The heap may grow to five times of what is in use before it is collected. A run of the catalogue takes a twentieth
	// less of a processor then, and 290 MiB of memory instead of 150.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// The first signal lets a command end in its own time. Those that work in a sandbox are ended by the second Ctrl-C
	// from outside.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(int(conclude(err)))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "viplab",
		Short:         "A lab for Kubernetes Services: their virtual IPs, proved with real packets",
		Version:       version(),
		SilenceUsage:  true, // an error is one message, not a page
		SilenceErrors: true, // conclude prints it, once
	}
	root.AddCommand(newConform(), newNetpol(), newProve(), newTrial(), newCatalogue(), newScenario(), newRules(),
		newDoctor())
	return root
}

func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

// exitCode is an error that needs no message any more, and asks for an exit code.
type exitCode int

// exitWith returns an error that asks for the exit code, nil for 0.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// conclude prints an error and chooses the exit code: 2 unless the command asked for another.
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

// version is the module's version where the executable was built by "go install ...@version", else the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
