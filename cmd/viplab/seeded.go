// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/spec"
)

// A fault is in a whole process, so "viplab prove" is many: each is "viplab seeded", which prints a prove.Outcome.

// children starts them.
type children struct {
	flags    *proveFlags
	proxiers []spec.Proxier
	stderr   io.Writer
}

// self is this program once more, with other arguments. The end of the context asks it to end, and 10 seconds later
// kills it.
func self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// exactly is a regular expression that matches the names and nothing else.
func exactly(names []string) string {
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, regexp.QuoteMeta(n))
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// run carries a job out in a process of its own.
func (c children) run(ctx context.Context, job prove.Job) (out prove.Outcome, err error) {
	i := slices.IndexFunc(c.proxiers, func(p spec.Proxier) bool { return p.Name() == job.Proxier })
	args := append([]string{"seeded"}, c.flags.judged.arguments(c.proxiers[i])...)
	args = append(args, c.flags.cluster.arguments()...)
	args = append(args, "--fault", job.Fault, "--rows", strings.Join(job.Scenarios, ","))
	return outcomeOf(ctx, args...)
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

// newSeeded is the command of the children.
func newSeeded() *cobra.Command {
	var f conformFlags
	var rows []string
	cmd := &cobra.Command{
		Use:    "seeded",
		Short:  "Run scenarios with a fault and print what came of it, for viplab prove",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return seeded(cmd.Context(), &f, rows, cmd.OutOrStdout())
		},
	}
	f.judged.add(cmd.Flags())
	f.cluster.add(cmd)
	cmd.Flags().StringVar(&f.fault, "fault", "", "the fault; empty: none")
	cmd.Flags().StringSliceVar(&rows, "rows", nil, "the scenarios")
	return cmd
}

func seeded(ctx context.Context, f *conformFlags, rows []string, stdout io.Writer) error {
	o := engine.Options{Scenarios: scenarios.All(), Hasty: f.fault != ""}
	o.Focus = regexp.MustCompile(exactly(rows))
	var err, unknown error
	o.Proxiers, err = f.judged.proxiers()
	o.Enforcer, unknown = f.judged.enforcer()
	if err := errors.Join(err, unknown, f.cluster.set(&o)); err != nil {
		return err
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	var s *faults.Seeding
	if f.fault != "" {
		if s, err = seed(ctx, f.fault, &o); err != nil {
			return err
		}
	}
	outcome, err := judge(ctx, o, s)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(outcome)
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

func judge(ctx context.Context, o engine.Options, s *faults.Seeding) (out prove.Outcome, err error) {
	cells, err := engine.Plan(ctx, o)
	if err != nil {
		return out, err
	}
	run := engine.NewRun(cells, o)
	run.Do(ctx)
	out.Results = report.New(version(), kernelRelease(), run.Note(), run.Results()).Results
	if s != nil {
		out.Touched = s.Touched()
		for _, err := range s.Refused() {
			out.Refused = append(out.Refused, err.Error())
		}
	}
	if err := run.Close(context.WithoutCancel(ctx)); err != nil && s == nil {
		return out, err // a proxier with a fault may well not leave as it should
	}
	return out, nil
}
