// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime"
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

// proveFlags are the flags of "viplab prove" as typed.
type proveFlags struct {
	judged     judgedFlags
	cluster    clusterFlags
	focus      string
	fault      string
	out        string
	everything bool
	list       bool
}

// provedByDefault are the proxiers that faults are put into: one for each mechanism.
var provedByDefault = []string{"iptables", "nftables", "userspace", "ipvs"}

func newProve() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Show that every scenario can fail: put faults into proxiers, and see who notices",
		Long: `prove puts faults into proxiers, one at a time, and runs the scenarios that must notice. A fault changes what a proxier is
told of the cluster, what it writes to iptables-restore, nft and ipset, what it asks of the kernel, or the node beside it.
A fault is caught if each scenario that it names fails with it and passes without it. prove prints who has caught what,
and leaves prove.json in the output folder.

One fault at work, with all that a failure leaves behind: viplab conform --fault NAME --focus SCENARIO

Exit code: 0 all faults were caught, and every scenario has one; 1 a fault survived, or a scenario has none; 2 the harness
broke, a proxier could not work at all with a fault, nothing was tried, or bad usage.`,
		Example: `  viplab prove
  viplab prove --list
  viplab prove --focus '^etp-local-'
  viplab prove --fault '^no-masquerade$' --proxier iptables,iptables-legacy,kube-proxy-iptables
  viplab prove --fault '^endpoint-forgotten$' --everything`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.list {
				return listFaults(cmd.OutOrStdout(), faults.All())
			}
			return f.prove(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.judged.add(flags, provedByDefault...)
	f.cluster.add(cmd)
	flags.StringVar(&f.focus, "focus", "", "prove only scenarios whose id matches this regular expression")
	flags.StringVar(&f.fault, "fault", "", "put in only faults whose name matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for prove.json")
	flags.BoolVar(&f.everything, "everything", false,
		"run all scenarios with each fault, to see who notices beside those that it names")
	flags.BoolVar(&f.list, "list", false, "list the faults instead of putting them in")
	complete(cmd, "proxier", proxierNames()...)
	complete(cmd, "enforcer", enforcerNames()...)
	complete(cmd, "fault", faultNames()...)
	return cmd
}

func faultNames() []string {
	var names []string
	for _, f := range faults.All() {
		names = append(names, f.Name)
	}
	return names
}

func listFaults(w io.Writer, all []faults.Fault) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range all {
		on := "all"
		if len(f.On) > 0 {
			on = strings.Join(f.On, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\n\tin %s\n\tcaught by %s\n", f.Name, f.Breaks, on, strings.Join(f.Scenarios, ", "))
	}
	return t.Flush()
}

// options checks all flags before anything is started, and tells every mistake at once.
func (f *proveFlags) options() (prove.Options, []spec.Proxier, error) {
	o := prove.Options{
		Faults: faults.All(), Immune: faults.Immunes, Scenarios: scenarios.All(), Everything: f.everything,
		Parallel: 2 * runtime.GOMAXPROCS(0),
	}
	var errs []error
	collect := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	judged, err := f.judged.proxiers()
	_, unknown := f.judged.enforcer()
	errs = append(errs, err, unknown, f.cluster.set(&engine.Options{}))
	for _, p := range judged {
		o.Proxiers = append(o.Proxiers, p.Name())
	}
	if f.focus != "" {
		o.Focus, err = regexp.Compile(f.focus)
		collect("focus", err)
	}
	if f.fault != "" {
		o.Only, err = regexp.Compile(f.fault)
		collect("fault", err)
	}
	f.out, err = filepath.Abs(f.out)
	collect("out", err)
	return o, judged, errors.Join(errs...)
}

func (f *proveFlags) prove(ctx context.Context, stdout, stderr io.Writer) error {
	o, judged, err := f.options()
	if err != nil {
		return err
	}
	if err := prepare(ctx, judged, stderr); err != nil {
		return err
	}
	children := children{flags: f, proxiers: judged, stderr: stderr}
	o.Run = children.run
	o.Listen = told(stderr)
	return proveAndReport(ctx, o, f.out, stdout)
}

// proveAndReport runs all trials, and reports what they show on standard output and in the folder.
func proveAndReport(ctx context.Context, o prove.Options, folder string, stdout io.Writer) error {
	proof, err := prove.Do(ctx, o)
	if err != nil {
		return err
	}
	proof.Version, proof.Kernel = version(), kernelRelease()
	if err := proof.WriteJSON(folder); err != nil {
		return err
	}
	if err := proof.Write(stdout, isTerminal(stdout)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "report: %s\n", filepath.Join(folder, "prove.json"))
	if code := proof.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// told writes a line for each trial that has ended with something to say, and how far things are.
func told(w io.Writer) func(done, of int, t prove.Trial) {
	began := time.Now()
	return func(done, of int, t prove.Trial) {
		if t.Verdict == prove.Foreign && done < of {
			return
		}
		name := t.Fault
		if name == "" {
			name = "no fault"
		}
		fmt.Fprintf(w, "%d of %d, %.1f s: %s in %s %s\n", done, of, time.Since(began).Seconds(), name, t.Proxier, t.Verdict)
	}
}
