// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// netpolFlags are the flags of "viplab netpol" as typed.
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
	focus     string
	out       string
	parallel  int
	tables    bool
	prove     bool
}

func newNetpol() *cobra.Command {
	var f netpolFlags
	cmd := &cobra.Command{
		Use:   "netpol",
		Short: "Prove with real packets that an enforcer of NetworkPolicy opens and blocks what it must",
		Long: `netpol builds three namespaces of three pods on three nodes, places the enforcer on every node, and applies the policies
of one case after another. After each, every pod sends to every pod on two ports, with TCP and UDP: 324 probes, each of which
must be answered by the right pod or be dropped. A drop counts only with evidence: the enforcer has logged this very
packet, or, where it logs nothing, the packet was seen leaving its pod and nowhere else.

A line of a table is a sender, a column a target, and a cell has a mark for each of ` + portList() + `:
  .  the right pod answered        X  dropped, and logged as such     R  refused (RST or ICMP)
  ?  silence that nobody owns up to                                   W  another pod answered
  A  arrived, but no answer came back                                 (blank)  not probed
A case that fails is printed with its policies in words, the cells that are wrong, and a dash for all others.

Exit code: 0 all cases passed, or, with --prove, all faults were noticed; 1 a failure; 2 the harness broke, nothing ran, or bad usage.`,
		Example: `  viplab netpol
  viplab netpol --enforcer policy-nftables --ip 4 --pods routed --focus '^IPB-' --tables
  viplab netpol --cases my-policies.yaml --tables
  viplab netpol --random 1000 --seed 7
  viplab netpol --prove --ip 4`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.enforcers, "enforcer", enforcerNames(), "enforcers to judge")
	flags.StringVar(&f.exec, "exec", "", "judge this command: it is started on every node with a kubeconfig, as that "+
		"of viplab conform; what it drops is known by packets that leave a pod and come nowhere")
	flags.StringVar(&f.name, "name", "", "what reports call the command of --exec (default: the name of its program)")
	flags.DurationVar(&f.patience, "patience", 10*time.Second, "how long the command of --exec may take to obey a change")
	flags.StringVar(&f.proxier, "proxier", "",
		"place this proxier beside the enforcer, and fire each table through Services as well: "+strings.Join(proxierNames(),
			", "))
	f.cluster.add(cmd)
	_ = flags.Set("pods", "routed") // which every enforcer takes
	flags.Lookup("pods").DefValue = "routed"
	flags.StringVar(&f.cases, "cases", "", "judge these cases instead of those that come with the program: a file like "+
		"scenarios/networkpolicy/cases.json, or a manifest of NetworkPolicies, whose table is computed")
	flags.IntVar(&f.random, "random", 0, "judge this many generated cases instead; the first that fails is made as "+
		"small as it can be, and left as a file for --cases")
	flags.Uint64Var(&f.seed, "seed", rand.Uint64N(1_000_000), "which cases --random generates")
	flags.Lookup("seed").DefValue = "another one each time"
	flags.StringVar(&f.fault, "fault", "", "put this fault into the enforcers, to see what notices it: the policies of "+
		"someone who reads the API wrongly, or something in what they write (--prove lists them)")
	flags.BoolVar(&f.prove, "prove", false, "put one fault after another into the enforcers, and show which cases notice")
	flags.StringVar(&f.focus, "focus", "", "run only cases whose id matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for report.json and junit.xml")
	flags.IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "how many clusters work at the same time")
	flags.BoolVar(&f.tables, "tables", false, "print the table of every case")
	complete(cmd, "enforcer", enforcerNames()...)
	complete(cmd, "proxier", proxierNames()...)
	complete(cmd, "fault", enforcerFaults()...)
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
	random    int // this many generated cases instead, of this seed and focus
	seed      uint64
	focus     *regexp.Regexp
	file      string        // of cases
	fault     *faults.Fault // in what enforcers write
	options   netpol.Options
	parallel  int
	tables    bool
	out       string
	stdout    io.Writer
	progress  io.Writer
}

// plan checks all flags before anything is built and tells every mistake at once.
func (f *netpolFlags) plan() (*netpolRun, error) {
	r := &netpolRun{tables: f.tables, parallel: f.parallel, random: f.random, seed: f.seed, file: f.cases}
	var cluster engine.Options
	errs := []error{f.cluster.set(&cluster)}
	r.options = netpol.Options{Stack: cluster.Stack, PodNetwork: cluster.PodNetwork, Overlay: cluster.Overlay}
	if f.exec == "" {
		for _, name := range f.enforcers {
			e, err := enforcerNamed(name)
			errs = append(errs, err)
			r.enforcers = append(r.enforcers, e)
		}
	}
	errs = append(errs, f.outside(r), f.beside(r))
	if f.parallel < 1 {
		errs = append(errs, fmt.Errorf("--parallel: %d: want 1 or more", f.parallel))
	}
	errs = append(errs, r.seedWith(f.fault))
	var err error
	if r.focus, err = regexp.Compile(f.focus); err != nil {
		errs = append(errs, fmt.Errorf("--focus: %w", err))
	}
	if f.prove && (f.random > 0 || f.fault != "") {
		errs = append(errs, errors.New("--prove: puts in all faults, on written cases: no --random and no --fault beside it"))
	}
	if f.prove && cluster.Stack == lab.IPv6 {
		errs = append(errs, errors.New("--prove: which cases must notice is known for IPv4: want --ip 4 or dual"))
	}
	if f.random < 0 || f.random > 0 && f.cases != "" {
		errs = append(errs, errors.New("--random: want a number of cases, and no --cases beside it"))
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
	if r.random > 0 {
		r.options.NamedPorts = netpol.Random(r.seed, 0).NamedPorts
		return r, nil
	}
	r.cases = slices.DeleteFunc(r.cases, func(c netpol.Case) bool { return !r.focus.MatchString(c.ID) })
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

func (f *netpolFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	r, err := f.plan()
	if err != nil {
		return err
	}
	r.stdout, r.progress = stdout, stderr
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if p := r.options.Proxier; p != nil {
		if err := prepare(ctx, []spec.Proxier{p}, stderr); err != nil {
			return err
		}
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	if f.prove {
		return r.prove(ctx)
	}
	if r.fault != nil {
		s, err := faults.Seed(ctx, *r.fault, r.enforcers...)
		if err != nil {
			return err
		}
		r.enforcers = s.Proxiers
	}
	var results []spec.Result
	for _, e := range r.enforcers {
		judge := r.judge
		if r.random > 0 {
			judge = r.judgeRandom
		}
		judged, err := judge(ctx, e)
		if err != nil {
			return err
		}
		results = append(results, judged...)
	}
	note := fmt.Sprintf("%s pods, overlay %s, %s", r.options.PodNetwork, r.options.Overlay, r.options.Stack)
	all := report.New(version(), kernelRelease(), note, results)
	if err := errors.Join(all.WriteJSON(r.out), all.WriteJUnit(r.out)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "report: %s and junit.xml\n", filepath.Join(r.out, "report.json"))
	if code := all.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}
