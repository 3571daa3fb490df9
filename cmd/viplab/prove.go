// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/spec"
)

type proveFlags struct {
	proxiers   proxierFlags
	cluster    clusterFlags
	focus      string
	fault      string
	out        string
	everything bool
	list       bool
	random     randomFlags
}

func newProve() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Show that every scenario can fail: put faults into proxiers, and see which scenarios notice",
		Long: `prove puts faults into proxiers, one at a time, and runs the scenarios that must notice. A fault changes
the state of the cluster as a proxier sees it, what it writes to iptables-restore, nft and ipset, what it asks
of the kernel, or the node beside it. A fault is caught if each scenario that it names fails with it and passes
without it. prove prints which scenarios caught which fault, and writes prove.json into the output folder.

With --random, generated cases (docs/random.md) search for each fault instead. prove prints how many cases and how
long the search took, and writes search.json.

To see one fault at work, with the evidence of its failures: viplab conform --fault NAME --focus SCENARIO

Exit code: 0 all faults were caught, and every scenario has one; 1 a fault survived, or a scenario has none; 2 the
harness broke, a proxier could not work at all with a fault, nothing was tried, the run was interrupted, or bad usage.`,
		Example: `  viplab prove
  viplab prove --list
  viplab prove --focus '^etp-local-'
  viplab prove --fault '^no-masquerade$' --proxier iptables,iptables-legacy,kube-proxy-iptables
  viplab prove --fault '^endpoint-forgotten$' --everything
  viplab prove --random 2000 --seed 1 --time 10m --proxier nftables`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, programs, err := f.options()
			switch {
			case err != nil:
				return err
			case f.list:
				return f.listFaults(cmd.OutOrStdout(), o, programs)
			case f.random.cases > 0:
				return f.search(cmd.Context(), o, programs, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return f.prove(cmd.Context(), o, programs, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.proxiers.add(cmd, "iptables", "nftables", "userspace", "ipvs") // one for each mechanism
	f.cluster.add(cmd)
	flags.StringVar(&f.focus, "focus", "", "prove only scenarios whose id matches this regular expression")
	flags.StringVar(&f.fault, "fault", "", "put in only faults whose name matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for prove.json")
	flags.BoolVar(&f.everything, "everything", false,
		"run all scenarios with each fault, to see which fail beside those that it names")
	flags.BoolVar(&f.list, "list", false, "list the faults that the other flags choose instead of putting them in")
	f.random.add(flags)
	complete(cmd, "fault", faults.Names()...)
	return cmd
}

// listFaults prints the faults that the options choose. If the command line names proxiers, it prints only the faults
// that apply to one of them, and that a scenario would notice which runs on them.
func (f *proveFlags) listFaults(w io.Writer, o prove.Options, programs []spec.Proxier) error {
	chosen, _, err := o.Select()
	if err != nil {
		return err
	}
	if f.proxiers.filter() {
		run := engine.Options{Proxiers: programs, Scenarios: o.Scenarios, Focus: o.Focus}
		if run.Enforcer, err = f.proxiers.enforcer(); err == nil {
			err = f.cluster.set(&run)
		}
		if err != nil {
			return err
		}
		runs, err := engine.Select(run)
		if err != nil {
			return err
		}
		noticed := func(id string) bool {
			return slices.ContainsFunc(runs, func(s spec.Scenario) bool { return s.ID == id })
		}
		chosen = slices.DeleteFunc(chosen, func(x faults.Fault) bool {
			isFor := func(proxier string) bool { return o.For(x, proxier) }
			return !slices.ContainsFunc(o.Proxiers, isFor) || !slices.ContainsFunc(x.Scenarios, noticed)
		})
	}
	return listFaults(w, chosen)
}

func listFaults(w io.Writer, chosen []faults.Fault) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range chosen {
		on := "all"
		if len(x.Proxiers) > 0 {
			on = strings.Join(x.Proxiers, ", ")
		}
		if len(x.Except) > 0 {
			on += " but " + strings.Join(x.Except, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\n\tin %s\n\tcaught by %s\n", x.Name, x.Description, on, strings.Join(x.Scenarios, ", "))
	}
	return t.Flush()
}

// options checks all flags before anything is started, and reports every mistake at once.
func (f *proveFlags) options() (prove.Options, []spec.Proxier, error) {
	o := prove.Options{Everything: f.everything, Parallel: 2 * processors}
	var errs [9]error
	var run engine.Options
	errs[0] = f.cluster.set(&run)
	o.Stack = run.Stack
	o.Scenarios, errs[1] = scenarios.All()
	o.Faults, o.Immune, errs[2] = faults.All()
	programs, err := f.proxiers.proxiers()
	errs[3] = err
	_, errs[4] = f.proxiers.enforcer()
	o.Focus, errs[5] = matching("focus", f.focus)
	o.Only, errs[6] = matching("fault", f.fault)
	f.out, errs[7] = filepath.Abs(f.out)
	errs[8] = f.random.check(f)
	if err := errors.Join(errs[:]...); err != nil {
		return o, nil, err
	}
	o.Proxiers = each(programs, spec.Proxier.Name)
	if f.proxiers.given("exec") {
		o.Outside = f.proxiers.name
	}
	_, _, err = o.Select()
	return o, programs, err
}

func (f *proveFlags) prove(ctx context.Context, o prove.Options, programs []spec.Proxier, stdout,
	stderr io.Writer) error {
	if err := f.proxiers.checkExec(ctx, programs); err != nil {
		return err
	}
	if err := prepare(ctx, programs, stderr); err != nil {
		return err
	}
	o.Run = func(ctx context.Context, job prove.Job) (prove.Outcome, error) {
		p := programs[slices.Index(o.Proxiers, job.Proxier)]
		return outcomeOf[prove.Outcome](ctx, slices.Concat([]string{"trial"}, f.proxiers.arguments(p), f.cluster.arguments(),
			[]string{"--fault", job.Fault, "--focus", exactly(job.Scenarios)})...)
	}
	o.Listen = printTrials(stderr)
	return proveAndReport(ctx, o, f.out, stdout)
}

// proveAndReport runs all trials, and reports the results on standard output and in the folder.
func proveAndReport(ctx context.Context, o prove.Options, folder string, stdout io.Writer) error {
	proof, err := prove.Do(ctx, o)
	if err != nil {
		return err
	}
	proof.Version, proof.Kernel = version(), kernelRelease()
	if err := errors.Join(proof.WriteJSON(folder), proof.Write(stdout, colours(stdout))); err != nil {
		return err
	}
	judged, all := proof.Judged()
	fmt.Fprintf(stdout, "%sreport: %s\n", leftOut(judged, all, "faults in proxiers"),
		filepath.Join(folder, "prove.json"))
	return exitWith(proof.ExitCode())
}

// printTrials prints the progress and each trial that ended, except those that do not apply or were not run.
func printTrials(w io.Writer) func(done, of int, t prove.Trial) {
	began := time.Now()
	return func(done, of int, t prove.Trial) {
		if t.Verdict == prove.Foreign && done < of || t.Verdict == prove.NotRun {
			return
		}
		fmt.Fprintf(w, "%d of %d, %.1f s: %s in %s %s\n", done, of, time.Since(began).Seconds(),
			cmp.Or(t.Fault, "no fault"), t.Proxier, t.Verdict)
	}
}
