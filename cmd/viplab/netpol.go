package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/engine"
	"github.com/viplab/viplab/suite/netpol"
	"github.com/viplab/viplab/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// netpolFlags are the flags of "viplab netpol" as typed.
type netpolFlags struct {
	cluster   clusterFlags
	enforcers []string
	cases     string
	focus     string
	out       string
	tables    bool
}

func newNetpol() *cobra.Command {
	var f netpolFlags
	cmd := &cobra.Command{
		Use:   "netpol",
		Short: "Prove with real packets that an enforcer of NetworkPolicy opens and blocks what it must",
		Long: `netpol builds three namespaces of three pods on three nodes, places the enforcer on every node, and applies the policies
of one case after another. After each, every pod sends to every pod on two ports, with TCP and UDP: 324 probes, each of
which must be answered by the right pod or be dropped. A drop counts only with evidence that the enforcer has made it.

A line of a table is a sender, a column a target, and a cell has a mark for each of ` + portList() + `:
  .  the right pod answered        X  dropped, and logged as such     R  refused (RST or ICMP)
  ?  silence that nobody owns up to                                   W  another pod answered
A case that fails is printed with the cells that are wrong, and a dash for all others.

Exit code: 0 all cases passed; 1 a failure; 2 the harness broke, nothing ran, or bad usage.`,
		Example: `  viplab netpol
  viplab netpol --enforcer policy-nftables --ip 4 --pods routed --focus '^IPB-' --tables
  viplab netpol --cases my-policies.yaml --tables`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.enforcers, "enforcer", enforcerNames(), "enforcers to judge")
	f.cluster.add(cmd)
	flags.StringVar(&f.cases, "cases", "", "judge these cases instead of those that come with the program: a file like scenarios/networkpolicy/cases.json, or a manifest of NetworkPolicies, whose table is computed")
	flags.StringVar(&f.focus, "focus", "", "run only cases whose id matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for report.json")
	flags.BoolVar(&f.tables, "tables", false, "print the table of every case")
	complete(cmd, "enforcer", enforcerNames()...)
	return cmd
}

func portList() string {
	var names []string
	for _, p := range netpol.Ports {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// netpolRun is a run as the flags ask for it.
type netpolRun struct {
	enforcers []spec.Proxier
	cases     []netpol.Case
	options   netpol.Options
	tables    bool
	out       string
	stdout    io.Writer
	progress  io.Writer
}

// plan checks all flags before anything is built and tells every mistake at once.
func (f *netpolFlags) plan() (*netpolRun, error) {
	r := &netpolRun{tables: f.tables}
	var cluster engine.Options
	errs := []error{f.cluster.set(&cluster)}
	r.options = netpol.Options{Stack: cluster.Stack, PodNetwork: cluster.PodNetwork, Overlay: cluster.Overlay}
	for _, name := range f.enforcers {
		e, err := enforcerNamed(name)
		errs = append(errs, err)
		r.enforcers = append(r.enforcers, e)
	}
	focus, err := regexp.Compile(f.focus)
	if err != nil {
		errs = append(errs, fmt.Errorf("--focus: %w", err))
	}
	if r.cases, err = f.load(); err != nil {
		errs = append(errs, err)
	}
	if r.out, err = filepath.Abs(f.out); err != nil {
		errs = append(errs, fmt.Errorf("--out: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.cases = slices.DeleteFunc(r.cases, func(c netpol.Case) bool { return !focus.MatchString(c.ID) })
	if len(r.cases) == 0 {
		return nil, fmt.Errorf("--focus: no case matches %q", f.focus)
	}
	r.options.NamedPorts, err = netpol.NamesOf(r.cases)
	return r, err
}

func (f *netpolFlags) load() ([]netpol.Case, error) {
	if f.cases == "" {
		return netpol.Static()
	}
	data, err := os.ReadFile(f.cases)
	if err != nil {
		return nil, fmt.Errorf("--cases: %w", err)
	}
	return netpol.Load(f.cases, data)
}

// enforcerNamed is a built-in enforcer.
func enforcerNamed(name string) (spec.Proxier, error) {
	all := proxiers.Enforcers()
	i := slices.IndexFunc(all, func(e spec.Proxier) bool { return e.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("--enforcer: unknown enforcer %q: there are %s", name, strings.Join(enforcerNames(), ", "))
	}
	return all[i], nil
}

func (f *netpolFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	r, err := f.plan()
	if err != nil {
		return err
	}
	r.stdout, r.progress = stdout, stderr
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	var results []spec.Result
	for _, e := range r.enforcers {
		judged, err := r.judge(ctx, e)
		if err != nil {
			return err
		}
		results = append(results, judged...)
	}
	note := fmt.Sprintf("%s pods, overlay %s, %s", r.options.PodNetwork, r.options.Overlay, r.options.Stack)
	all := report.New(version(), kernelRelease(), note, results)
	if err := all.WriteJSON(r.out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "report: %s\n", filepath.Join(r.out, "report.json"))
	if code := all.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// judge runs all cases on an enforcer. One that cannot run here, or not on such pods, is skipped case by case.
func (r *netpolRun) judge(ctx context.Context, e spec.Proxier) ([]spec.Result, error) {
	var cannot *spec.UnusableError
	err := e.Usable(ctx)
	var bench *netpol.Bench
	if err == nil {
		bench, err = netpol.NewBench(ctx, e, r.options)
	}
	if errors.As(err, &cannot) {
		fmt.Fprintf(r.stdout, "%s: skipped: %v\n", e.Name(), err)
		return r.each(func(netpol.Case) spec.Result {
			return spec.Result{Verdict: spec.Skip, Reason: err.Error(), Proxier: e.Name()}
		}), nil
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var tables []time.Duration
	ended := 0
	results := r.each(func(c netpol.Case) spec.Result {
		result := r.one(ctx, bench, c, &tables)
		result.Proxier = e.Name()
		if ended++; ended%25 == 0 {
			fmt.Fprintf(r.progress, "%s: %d of %d cases, %.1f s\n", e.Name(), ended, len(r.cases), time.Since(began).Seconds())
		}
		return result
	})
	r.sumUp(e.Name(), results, tables, time.Since(began))
	return results, bench.Close(context.WithoutCancel(ctx))
}

// each makes a result of every case.
func (r *netpolRun) each(judge func(netpol.Case) spec.Result) []spec.Result {
	var out []spec.Result
	for _, c := range r.cases {
		result := judge(c)
		result.Scenario = spec.Scenario{ID: c.ID, Group: "networkpolicy", Why: cmp.Or(c.Why, c.Given), Priority: c.Priority, Source: c.Source}
		out = append(out, result)
	}
	return out
}

// one judges a case, prints what there is to see of it, and adds what its tables took.
func (r *netpolRun) one(ctx context.Context, bench *netpol.Bench, c netpol.Case, tables *[]time.Duration) spec.Result {
	began := time.Now()
	verdicts, err := bench.Judge(ctx, c)
	result := spec.Result{Verdict: spec.Pass, Took: time.Since(began)}
	if err != nil {
		var refused *netpol.ApplyError
		result.Verdict, result.Reason = spec.Broken, err.Error()
		if errors.As(err, &refused) && ctx.Err() == nil {
			result.Verdict = spec.Fail
		}
		fmt.Fprintf(r.stdout, "%s: %s: %v\n", c.ID, result.Verdict, err)
		return result
	}
	var reasons []string
	for _, v := range verdicts {
		*tables = append(*tables, v.Took)
		if v.Verdict != spec.Pass {
			reasons = append(reasons, fmt.Sprintf("%s: %s", v.Family, v.Differences()))
			if result.Verdict != spec.Fail {
				result.Verdict = v.Verdict
			}
		}
		r.print(c, &v)
	}
	result.Reason = strings.Join(reasons, "\n")
	return result
}

// print shows a table where it was asked for, and what is wrong in it in any case.
func (r *netpolRun) print(c netpol.Case, v *netpol.Verdict) {
	title := fmt.Sprintf("%s %s %s: %s (%s)", c.ID, c.Priority, v.Family, v.Verdict, c.Given)
	if r.tables {
		fmt.Fprintf(r.stdout, "%s\n", title)
		_ = v.WriteSeen(r.stdout) // a closed pipe ends the program by itself
	}
	if v.Verdict != spec.Pass {
		fmt.Fprintf(r.stdout, "%s: %d cells are wrong\n", title, len(v.Wrong))
		_ = v.WriteDifferences(r.stdout)
	}
}

func (r *netpolRun) sumUp(name string, results []spec.Result, tables []time.Duration, took time.Duration) {
	count := map[spec.Verdict]int{}
	for _, x := range results {
		count[x.Verdict]++
	}
	fmt.Fprintf(r.stdout, "%s: %d passed, %d failed, %d broken, %.1f s", name, count[spec.Pass], count[spec.Fail], count[spec.Broken], took.Seconds())
	if slices.Sort(tables); len(tables) > 0 {
		fmt.Fprintf(r.stdout, "; a table of %d probes takes %d ms (median of %d)", netpol.Cells, tables[len(tables)/2].Milliseconds(), len(tables))
	}
	fmt.Fprintln(r.stdout)
}
