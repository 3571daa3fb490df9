// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/report"
)

// A fault affects a whole process, so "viplab prove" starts "viplab trial" for each trial, which prints a
// prove.Outcome, or a prove.Found if the cases are generated.

func exactly(names []string) string {
	return "^(" + strings.Join(each(names, regexp.QuoteMeta), "|") + ")$"
}

// outcomeOf runs this program with arguments that make it print an outcome as JSON, and returns the outcome. When the
// context ends, it interrupts the program, and kills it 5 seconds later. The program is in a process group of its own:
// an interrupt of the whole group would break trials before this process knows of it.
func outcomeOf[T any](ctx context.Context, args ...string) (out T, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		awaitInterrupt(ctx, cmd.ProcessState)
		return out, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return out, fmt.Errorf("%s: read its output: %w", strings.Join(cmd.Args, " "), err)
	}
	return out, nil
}

// awaitInterrupt waits for the context to end if an interrupt has ended a program: one that reaches the whole process
// group ends a program that is not yet in a group of its own, maybe before this process knows of it. It waits for a
// second at most, as the interrupt may have been for the program alone.
func awaitInterrupt(ctx context.Context, ended *os.ProcessState) {
	if ended == nil {
		return
	}
	status, ok := ended.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != unix.SIGINT && status.Signal() != unix.SIGTERM {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

func newTrial() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:    "trial",
		Short:  "Run scenarios with a fault and print the outcome, for viplab prove",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			var outcome any
			if f.random > 0 {
				outcome, err = f.search(cmd.Context(), o)
			} else {
				outcome, err = f.runTrial(cmd.Context(), o)
			}
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(outcome)
		},
	}
	f.proxiers.add(cmd)
	f.cluster.add(cmd)
	cmd.Flags().StringVar((*string)(&f.fault), "fault", "", "the fault; empty: none")
	cmd.Flags().StringVar(&f.selected.focus, "focus", "", "the scenarios")
	f.addRandom(cmd.Flags())
	f.expect.add(cmd.Flags(), "those that come with viplab")
	return cmd
}

// runTrial runs the scenarios. With a fault, each ends at its first failure.
func (f *conformFlags) runTrial(ctx context.Context, o engine.Options) (out prove.Outcome, err error) {
	o.FailFast, o.Out = f.fault != "", ""
	seeding, err := f.enterSandbox(ctx, &o)
	if err != nil {
		return out, err
	}
	run, err := engine.Start(ctx, o)
	if err != nil {
		return out, err
	}
	out.Results = report.New(version(), kernelRelease(), run.Note(), run.Results()).Results
	if seeding != nil {
		out.Touched = seeding.Touched()
		out.Refused = each(seeding.Refused(), error.Error)
	}
	if err := run.Close(context.WithoutCancel(ctx)); err != nil && seeding == nil {
		return out, err // a proxier with a fault may fail to clean up its node
	}
	return out, nil
}
