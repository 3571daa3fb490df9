// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

type conformFlags struct {
	proxiers   proxierFlags
	cluster    clusterFlags
	selected   selectFlags
	shards     shardFlags
	out        string
	matrix     bool
	trySkipped bool
	keepFailed bool
	keep       bool
	list       bool
	parallel   int
	fault      faultFlag
	expect     expectFlags
	random     int
	seed       uint64
	time       time.Duration

	kept *live.Sockets // for a cluster that stays; nil without --keep and --keep-failed
}

func newConform() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Prove with real packets which promises of the Service API a proxier keeps",
		Long: `conform builds a cluster of three nodes out of network namespaces, places the proxier on every node, and
runs the scenarios of the catalogue in it. It prints each failure when it happens, and at the end the scenarios that
did not pass, why scenarios were skipped, what was wrong in a line for each failure, and the sums. It writes
report.json, report.html, junit.xml and, for each failure, rules, conntrack entries, logs and a packet capture into
the output folder.

It works inside namespaces of its own and changes nothing on the machine. Without root it needs a kernel that allows
user namespaces; "viplab doctor" checks that.

Exit code: 0 all that ran passed or failed as known (--expect), and something ran; 1 a failure, or a pass where a
failure is expected; 2 the harness broke, nothing ran, the run was interrupted, or bad usage.`,
		Example: `  viplab conform
  viplab conform --proxier iptables,iptables-legacy --ip dual --pods routed
  viplab conform --focus '^etp-local-' --out results
  viplab conform --group clusterip,nodeport --priority P0 --skip '^sctp-'
  viplab conform --proxier nftables --enforcer policy-nftables
  viplab conform --random 2000 --time 10m --proxier nftables
  viplab conform --proxier kube-proxy-iptables,kube-proxy-nftables
  viplab conform --exec './my-proxy --kubeconfig {{.Kubeconfig}} --node {{.NodeName}}' --features -nodeport-localhost`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			switch {
			case err != nil:
				return err
			case f.list:
				if !f.proxiers.filter() { // do not judge the default ones either
					o.Proxiers = nil
				}
				if o.Scenarios, err = f.selected.matching(o.Focus); err != nil {
					return err
				}
				return listScenarios(cmd.OutOrStdout(), o)
			}
			return f.run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.proxiers.add(cmd, "iptables")
	f.cluster.add(cmd)
	flags.StringVar(&f.selected.focus, "focus", "", "run only scenarios whose id matches this regular expression")
	flags.StringVar(&f.selected.skip, "skip", "",
		"skip scenarios whose id matches this regular expression; reports show them as not run")
	f.selected.add(cmd)
	f.shards.add(cmd)
	flags.StringVar(&f.out, "out", "viplab-out", "folder for the report and the evidence of failures")
	flags.BoolVar(&f.matrix, "matrix", false, "print all rows of the matrix with their times, what proxiers choose "+
		"where they may, and the ids of skipped scenarios")
	flags.BoolVar(&f.trySkipped, "try-skipped", false,
		"also run scenarios that need features which the proxier does not declare; one that passes counts as a "+
			"failure: the declaration is wrong")
	flags.BoolVar(&f.keepFailed, "keep-failed", false,
		"keep the cluster of a failed scenario as the lab "+keptLab+" (viplab exec, kubectl) until Ctrl-C")
	flags.BoolVar(&f.keep, "keep", false,
		"keep the cluster that most scenarios share as the lab "+keptLab+" until Ctrl-C, whatever the verdicts are")
	flags.IntVar(&f.parallel, "parallel", 0, "how many scenarios run at once in a cluster; more help a proxier whose "+
		"rounds take long whatever they change (default: 24, 18 if it converges at once, or 8 on a slow machine)")
	f.fault.add(cmd, "scenarios")
	flags.BoolVar(&f.list, "list", false, "list the scenarios that the other flags choose instead of running them")
	f.addRandom(flags)
	f.expect.add(flags, "those that come with viplab")
	return cmd
}

func listScenarios(w io.Writer, o engine.Options) error {
	selected, err := engine.Select(o)
	if err != nil {
		return err
	}
	for _, s := range selected {
		if _, err := fmt.Fprintf(w, "%-40s %s  %s\n", s.ID, s.Priority, s.Why); err != nil {
			return err
		}
	}
	return nil
}

// options checks all flags before anything is built and reports every mistake at once. It does not set the scenarios,
// which are built in the process that runs them.
func (f *conformFlags) options() (engine.Options, error) {
	o := engine.Options{TrySkipped: f.trySkipped, KeepFailed: f.keepFailed, Keep: f.keep, Parallel: f.parallel,
		Command: f.rerun}
	var errs [8]error
	o.Proxiers, errs[0] = f.proxiers.proxiers()
	o.Enforcer, errs[1] = f.proxiers.enforcer()
	errs[2] = f.fault.check()
	o.Focus, errs[3] = matching("focus", f.selected.focus)
	errs[4] = f.shards.set(&o)
	o.Out, errs[5] = filepath.Abs(f.out)
	errs[6] = f.selected.check()
	if f.parallel < 0 {
		errs[7] = fmt.Errorf("--parallel: %d: want 1 or more, or 0 for the default", f.parallel)
	}
	o.Skip, _ = f.selected.skips() // checked
	return o, errors.Join(f.cluster.set(&o), f.checkRandom(), errs[0], errs[1], errs[2], errs[3],
		errs[4], inFlag("out", errs[5]), errs[6], errs[7])
}

// rerun returns the command line that judges one of the proxiers once more.
func (f *conformFlags) rerun(p spec.Proxier) string {
	command := invocation("conform") + " " + f.proxiers.quoted(p)
	if f.fault != "" {
		command += " --fault " + string(f.fault)
	}
	if f.trySkipped {
		command += " --try-skipped"
	}
	return command + f.expect.quoted()
}

// enterSandbox enters the sandbox, and sets the options that are built only there: the scenarios, the expectations, and
// the proxiers and the enforcer with a fault, if there is one.
func (f *conformFlags) enterSandbox(ctx context.Context, o *engine.Options) (*faults.Seeding, error) {
	var err error
	if f.kept, err = f.enter(ctx); err != nil {
		return nil, err
	}
	if o.Scenarios, err = f.selected.matching(o.Focus); err != nil {
		return nil, err
	}
	o.Expect, err = f.expect.known(o.Proxiers, f.proxiers.version, f.cluster, catalogue.IDs, f.proxiers.shipped)
	if err != nil {
		return nil, err
	}
	return f.fault.seed(ctx, &o.Proxiers, &o.Enforcer)
}

func (f *conformFlags) run(ctx context.Context, o engine.Options, stdout, stderr io.Writer) error {
	if err := f.proxiers.checkExec(ctx, o.Proxiers); err != nil {
		return err
	}
	if err := prepare(ctx, o.Proxiers, stderr); err != nil {
		return err
	}
	if f.random > 0 {
		return f.runRandom(ctx, o, stdout, stderr)
	}
	programs := o.Proxiers
	if _, err := f.enterSandbox(ctx, &o); err != nil {
		return err
	}
	unlock, err := lockOut(o.Out)
	if err != nil {
		return err
	}
	defer unlock()
	style := f.style(stdout, o)
	began := time.Now()
	progress := &progress{w: stderr, terminal: isTerminal(stderr), began: began}
	progress.failure = func(_ *engine.Cell, r spec.Result) {
		if r.Verdict == spec.Fail || ctx.Err() == nil { // what is interrupted is not broken
			_ = report.ResultOf(r).WriteFailure(stdout, style) // the sums fail to print, too
		}
	}
	o.Listen = progress.listen
	run, err := engine.Start(ctx, o)
	if err != nil {
		return err
	}
	results := report.New(version(), kernelRelease(), run.Note(), run.Results())
	progress.end()
	if err := f.describe(&results, o, programs, began); err != nil {
		return err
	}
	style.Interrupted = ctx.Err() != nil
	if err := printReport(results, o.Scenarios, o.Out, stdout, style, f.remark(ctx, results)); err != nil {
		return err
	}
	if !style.Interrupted {
		if err := f.expect.write(programs, run.Results(), stdout); err != nil {
			return err
		}
	}
	if err := f.hold(ctx, run, stdout); err != nil {
		return err
	}
	if err := run.Close(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return exitWith(results.ExitCode())
}
