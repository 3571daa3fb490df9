// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

type netpolFlags struct {
	cluster   clusterFlags
	enforcers []string
	exec      string
	name      string
	patience  time.Duration
	proxier   string
	cases     string
	random    int
	seed      uint64
	fault     string
	expect    expectFlags
	focus     string
	out       string
	parallel  int
	tables    bool
	prove     bool
	list      bool
	outcome   bool

	given func(flag string) bool // reports whether the command line has the flag
}

func newNetpol() *cobra.Command {
	var f netpolFlags
	ports := strings.Join(each(netpol.Ports, netpol.Port.String), ", ")
	cmd := &cobra.Command{
		Use:   "netpol",
		Short: "Prove with real packets that an enforcer of NetworkPolicy opens and blocks what it must",
		Long: `netpol builds three namespaces of three pods on three nodes, starts the enforcer on every node, and
applies the policies of one case after another. After each, every pod sends to every pod on two ports, with TCP
and UDP. Each of these 324 probes must be answered by the right pod or be dropped. A drop counts only with
evidence: the enforcer has logged this very packet, or, if it logs nothing, the packet has left its pod and has
not arrived.

A line of a table is a sender, a column a target, and a cell has a mark for each of ` + ports + `:
  .  the right pod answered        X  dropped, and logged as such     R  refused (RST or ICMP)
  ?  no answer, and no evidence of a drop                             W  another pod answered
  A  arrived, but no answer came back                                 (blank)  not probed
For a case that fails, netpol describes its policies and prints the wrong cells, with a dash for all others.

Exit code: 0 all cases passed or failed as known (--expect), or, with --prove, all faults were caught; 1 a failure, or a
pass where a failure is expected; 2 the harness broke, nothing ran, the run was interrupted, or bad usage.`,
		Example: `  viplab netpol
  viplab netpol --enforcer policy-nftables --ip 4 --pods routed --focus '^IPB-' --tables
  viplab netpol --cases my-policies.yaml --tables
  viplab netpol --random 1000 --seed 7
  viplab netpol --name mine --exec './mine --kubeconfig={{.Kubeconfig}}' --expect known.yaml
  viplab netpol --list --focus '^IPB-'
  viplab netpol --prove --ip 4
  viplab netpol --prove --ip 4 --fault endPort-ignored --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.enforcers, "enforcer", enforcerNames(), "enforcers to judge")
	flags.StringVar(&f.exec, "exec", "", "judge this command: it is started on every node with a kubeconfig, as with "+
		"viplab conform; a packet that leaves a pod and does not arrive counts as dropped")
	flags.StringVar(&f.name, "name", "", "what reports call the command of --exec (default: the name of its program)")
	flags.DurationVar(&f.patience, "patience", 10*time.Second, "how long the command of --exec may take to converge")
	flags.StringVar(&f.proxier, "proxier", "",
		"start this proxier beside the enforcer, and fire each table through Services as well: "+
			strings.Join(proxierNames(), ", "))
	f.cluster.add(cmd)
	_ = flags.Set("pods", "routed") // every enforcer supports them
	flags.Lookup("pods").DefValue = "routed"
	flags.StringVar(&f.cases, "cases", "", "judge these cases instead of the built-in ones: a file like "+
		"scenarios/networkpolicy/cases.json, or a manifest of NetworkPolicies, whose table is computed")
	flags.IntVar(&f.random, "random", 0, "judge this many generated cases instead; the first failing one is made as "+
		"small as possible and written to a file for --cases")
	flags.Uint64Var(&f.seed, "seed", rand.Uint64N(1_000_000), "which cases --random generates")
	flags.Lookup("seed").DefValue = "another one each time"
	flags.StringVar(&f.fault, "fault", "", "put this fault into the enforcers: a misreading of the API, or a fault in "+
		"the rules that they write (--prove --list shows them); with --prove, only the fault with this name or, if "+
		"none has it, those that match this regular expression")
	f.expect.add(flags, noExpectations)
	flags.BoolVar(&f.prove, "prove", false,
		"put one fault after another into the enforcers, and show which cases catch it")
	flags.StringVar(&f.focus, "focus", "", "run only cases whose id matches this regular expression")
	flags.BoolVar(&f.list, "list", false, "list the cases instead of running them; with --prove, the faults")
	flags.BoolVar(&f.outcome, "outcome", false, "print the outcome for viplab netpol --prove")
	_ = flags.MarkHidden("outcome")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for report.json, report.html and junit.xml, or prove.json")
	flags.IntVar(&f.parallel, "parallel", processors, "how many clusters work at the same time")
	flags.BoolVar(&f.tables, "tables", false, "print the table of every case")
	f.given = flags.Changed
	complete(cmd, "enforcer", enforcerNames()...)
	complete(cmd, "proxier", proxierNames()...)
	complete(cmd, "fault", enforcerFaults()...)
	return cmd
}

// netpolRun is a run of "viplab netpol" with the choices of its flags.
type netpolRun struct {
	flags     *netpolFlags
	enforcers []spec.Proxier
	cases     []netpol.Case
	fault     *faults.Fault // in the rules that enforcers write
	proved    []faults.Fault
	only      *regexp.Regexp           // names of faults, nil for all
	expected  map[string]*expect.Known // by enforcer
	options   netpol.Options
	refused   []string // errors of enforcers that could not apply policies
	judged    int      // cases of an interrupted run
	left      int      // cases that an interrupted run has not judged
	stdout    io.Writer
	progress  io.Writer
}

func (r *netpolRun) generated() bool { return r.flags.random > 0 }

// plan checks all flags before anything is built, and reports every mistake at once.
func (f *netpolFlags) plan() (*netpolRun, error) {
	r := &netpolRun{flags: f}
	var errs []error
	check := func(flag string, err error) { errs = append(errs, inFlag(flag, err)) }
	var cluster engine.Options
	errs = append(errs, f.cluster.set(&cluster), f.selectEnforcers(r), f.selectProxier(r), f.selectFault(r))
	r.options.Stack, r.options.PodNetwork, r.options.Overlay = cluster.Stack, cluster.PodNetwork, cluster.Overlay
	if f.parallel < 1 {
		check("parallel", fmt.Errorf("%d: want 1 or more", f.parallel))
	}
	if f.prove && f.random > 0 {
		check("prove", errors.New("faults name written cases, so it cannot be combined with --random"))
	}
	if f.prove && cluster.Stack == lab.IPv6 {
		check("prove", errors.New("faults name the cases that must catch them for IPv4: want --ip 4 or dual"))
	}
	if f.given("random") && f.random < 1 || f.random > 0 && f.cases != "" {
		check("random", errors.New("want a positive number of cases, without --cases"))
	}
	if !f.given("random") && f.given("seed") {
		errs = append(errs, errors.New("--seed requires --random N"))
	}
	if (f.expect.file != "" || f.expect.out != "") && (f.prove || f.random > 0) {
		check("expect", errors.New("expectations name written cases and concern no faults: omit --random and --prove"))
	}
	focus, err := regexp.Compile(f.focus)
	check("focus", err)
	f.out, err = filepath.Abs(f.out)
	check("out", err)
	all, err := f.load()
	check("cases", err)
	if errors.Join(errs...) == nil {
		ids := func() ([]string, error) { return each(all, func(c netpol.Case) string { return c.ID }), nil }
		r.expected, err = f.expect.known(r.enforcers, versionUnknown, f.cluster, ids, nothingShipped)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.cases = slices.DeleteFunc(slices.Clone(all), func(c netpol.Case) bool { return !focus.MatchString(c.ID) })
	if len(r.cases) == 0 {
		return nil, fmt.Errorf("--focus: no case matches %q", f.focus)
	}
	if f.prove {
		return r, r.selectProved(all)
	}
	r.options.NamedPorts, err = netpol.NamesOf(r.cases)
	return r, err
}

// load returns the cases: those of files, generated ones, or those that come with the program.
func (f *netpolFlags) load() (cases []netpol.Case, err error) {
	for i := range f.random {
		cases = append(cases, netpol.Random(f.seed, uint64(i)))
	}
	if f.random > 0 {
		return cases, nil
	}
	if f.cases == "" {
		return netpol.Static()
	}
	data, err := os.ReadFile(f.cases)
	if err != nil {
		return nil, err
	}
	return netpol.Load(f.cases, data)
}

func (f *netpolFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	r, err := f.plan()
	if err != nil {
		return err
	}
	r.stdout, r.progress = stdout, stderr
	if f.list {
		return r.list()
	}
	if p := r.options.Proxier; p != nil {
		if err := prepare(ctx, []spec.Proxier{p}, stderr); err != nil {
			return err
		}
	}
	if f.prove {
		return r.prove(ctx)
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	if err := sandbox.Enter(ctx); err != nil {
		return err
	}
	touched := func() int { return 1 }
	if r.fault != nil {
		s, err := faults.Seed(ctx, *r.fault, r.enforcers...)
		if err != nil {
			return err
		}
		r.enforcers, touched = s.Proxiers, s.Touched
	}
	if f.outcome {
		r.stdout = io.Discard
	}
	began := time.Now()
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
	stamp(&all, began, f.cluster)
	all.Settings.Fault = f.fault
	for _, e := range r.enforcers {
		if all.SetFeatures(e.Name(), e.Features()); f.exec == "" {
			all.SetVersion(e.Name(), version())
		}
	}
	if f.outcome {
		outcome := prove.Outcome{Results: all.Results, Touched: touched(), Refused: r.refused}
		return json.NewEncoder(stdout).Encode(outcome)
	}
	return r.report(ctx, all, results)
}

// report writes the reports and the expectations, and returns the exit code.
func (r *netpolRun) report(ctx context.Context, all report.Report, results []spec.Result) error {
	page, err := r.page(results)
	if err != nil {
		return err
	}
	out := r.flags.out
	if err := all.WriteAll(out, page); err != nil {
		return err
	}
	if ctx.Err() == nil {
		if err := r.flags.expect.write(r.enforcers, results, r.stdout); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.stdout, "%sreport: %s, report.html and junit.xml\n", leftOut(r.judged, r.judged+r.left, "cases"),
		filepath.Join(out, "report.json"))
	code := all.ExitCode()
	if code == 0 && r.left > 0 {
		code = 2
	}
	return exitWith(code)
}

// list prints the cases of the run, or the faults with --prove.
func (r *netpolRun) list() error {
	if r.proved != nil {
		return listFaults(r.stdout, r.proved)
	}
	for _, c := range r.cases {
		if _, err := fmt.Fprintf(r.stdout, "%-12s %s  %s\n", c.ID, c.Priority, c.Given); err != nil {
			return err
		}
	}
	return nil
}
