// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// A fault is in a whole process, so "viplab prove" starts "viplab trial" for each trial, which prints a prove.Outcome.

// trials runs the jobs of "viplab prove".
type trials struct {
	flags    *proveFlags
	proxiers []spec.Proxier
}

// self returns a command that runs this program with other arguments. The end of the context asks it to end, and kills
// it 10 seconds later.
func self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// exactly returns a regular expression that matches the names and nothing else.
func exactly(names []string) string {
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, regexp.QuoteMeta(n))
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// run carries a job out in a process of its own.
func (t trials) run(ctx context.Context, job prove.Job) (out prove.Outcome, err error) {
	i := slices.IndexFunc(t.proxiers, func(p spec.Proxier) bool { return p.Name() == job.Proxier })
	return outcomeOf(ctx, slices.Concat([]string{"trial"}, t.flags.proxiers.arguments(t.proxiers[i]),
		t.flags.cluster.arguments(), []string{"--fault", job.Fault, "--focus", exactly(job.Scenarios)})...)
}

// outcomeOf runs this program with other arguments, with which it prints an outcome.
func outcomeOf(ctx context.Context, args ...string) (out prove.Outcome, err error) {
	cmd := self(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return out, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return out, fmt.Errorf("%s: read its output: %w", strings.Join(cmd.Args, " "), err)
	}
	return out, nil
}

// newTrial is the command that trials start.
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
			if err := sandbox.Enter(); err != nil {
				return err
			}
			if o.Scenarios, err = matchingScenarios(o.Focus); err != nil {
				return err
			}
			if o.Expect, err = f.expect.known(o.Proxiers, f.cluster); err != nil {
				return err
			}
			o.FailFast, o.Out = f.fault != "", ""
			outcome, err := runTrial(cmd.Context(), o, f.fault)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(outcome)
		},
	}
	f.proxiers.add(cmd.Flags())
	f.cluster.add(cmd)
	cmd.Flags().StringVar(&f.fault, "fault", "", "the fault; empty: none")
	cmd.Flags().StringVar(&f.focus, "focus", "", "the scenarios")
	f.expect.add(cmd.Flags())
	return cmd
}

// seed puts a fault into the proxiers of a run, and into the enforcer.
func seed(ctx context.Context, fault string, o *engine.Options) (*faults.Seeding, error) {
	f, err := faults.Find(fault)
	if err != nil {
		return nil, err
	}
	programs := slices.Clone(o.Proxiers)
	if o.Enforcer != nil {
		programs = append(programs, o.Enforcer)
	}
	s, err := faults.Seed(ctx, f, programs...)
	if err != nil {
		return nil, err
	}
	o.Proxiers = s.Proxiers[:len(o.Proxiers)]
	if o.Enforcer != nil {
		o.Enforcer = s.Proxiers[len(o.Proxiers)]
	}
	return s, nil
}

func runTrial(ctx context.Context, o engine.Options, fault string) (out prove.Outcome, err error) {
	var seeding *faults.Seeding
	if fault != "" {
		if seeding, err = seed(ctx, fault, &o); err != nil {
			return out, err
		}
	}
	run, err := engine.Start(ctx, o)
	if err != nil {
		return out, err
	}
	out.Results = report.New(version(), kernelRelease(), run.Note(), run.Results()).Results
	if seeding != nil {
		out.Touched = seeding.Touched()
		for _, err := range seeding.Refused() {
			out.Refused = append(out.Refused, err.Error())
		}
	}
	if err := run.Close(context.WithoutCancel(ctx)); err != nil && seeding == nil {
		return out, err // a proxier with a fault may leave its node in disorder
	}
	return out, nil
}
