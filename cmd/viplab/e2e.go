// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/internal/suite/e2e"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

type e2eFlags struct {
	proxiers proxierFlags
	cluster  clusterFlags
	expect   expectFlags
	version  string
	focus    string
	skip     string
	out      string
	nodes    int
	parallel int
	slow     bool
	failFast bool
	list     bool
	fault    faultFlag
}

func newE2e() *cobra.Command {
	var f e2eFlags
	cmd := &cobra.Command{
		Use:   "e2e",
		Short: "Run Kubernetes' own end-to-end tests of networking, unmodified, without a cluster",
		Long: `e2e starts a lab with the proxier on every node, and runs the specs of Kubernetes' sig-network in it. The tests
are a client outside the cluster, so they reach NodePorts and load balancers as users do. Pods run programs.

The first run builds the tests and kubectl of the release, and programs of pods (agnhost, CoreDNS), from their Go
modules and keeps them in ~/.cache/viplab. That needs Go, the network and about 15 minutes on 2 cores. docs/e2e.md says
what runs.

e2e prints each failure when it happens, then a matrix, and writes report.json, report.html, junit.xml and the logs of
failures into the output folder. After Ctrl-C it reports what has run. A spec that a lab cannot run is skipped with the
reason, which --list shows, too.

Exit code: 0 all that ran passed or failed as known (--expect), and something ran; 1 a failure, or a pass where a
failure is expected; 2 the harness broke, nothing ran, the run was interrupted, or bad usage.`,
		Example: `  viplab e2e
  viplab e2e --focus '\[Conformance\]' --proxier kube-proxy-iptables,kube-proxy-nftables
  viplab e2e --enforcer policy-nftables --pods routed --focus Netpol
  viplab e2e --exec './my-proxy --kubeconfig {{.Kubeconfig}} --node {{.NodeName}}' --expect known.yaml
  viplab e2e --kubernetes-version v1.34.4
  viplab e2e --proxier nftables --fault affinity-ignored --focus 'session affinity (work|timeout)'
  viplab e2e --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.proxiers.add(cmd, "iptables")
	f.cluster.add(cmd)
	_ = flags.Set("overlay", "direct") // specs want a node's packets to pods to have the node's address
	flags.Lookup("overlay").DefValue = "direct"
	flags.StringVar(&f.version, "kubernetes-version", release.Default, "release whose tests to build and run")
	flags.StringVar(&f.focus, "focus", "", "run only specs whose name matches this regular expression")
	flags.StringVar(&f.skip, "skip", "", "do not run specs whose name matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for the report and the logs of failures")
	flags.IntVar(&f.nodes, "nodes", 3, "how many nodes the lab has, in 3 zones; some specs need 6")
	flags.IntVar(&f.parallel, "parallel", parallelSpecs(),
		"how many processes run specs at the same time; 1 counts as 2")
	flags.BoolVar(&f.slow, "slow", false, "also run specs that take more than 10 minutes each")
	flags.BoolVar(&f.failFast, "fail-fast", false, "end with the first failure on each proxier")
	flags.BoolVar(&f.list, "list", false, "list the specs that the other flags choose instead of running them")
	f.fault.add(cmd, "specs")
	f.expect.add(flags, noExpectations)
	complete(cmd, "kubernetes-version", release.Known()...)
	return cmd
}

// Processes of the tests spend most of their time waiting: a CPU carries many. With 12 on each CPU of a slow machine, a
// kubectl exec took 10 s, and pods ended before their specs had asked them.
const (
	specsPerCPU    = 8
	memoryPerSpecs = 512 << 20 // bytes for a process and the pods of its spec
)

// parallelSpecs returns how many processes the machine carries.
func parallelSpecs() int {
	most := specsPerCPU * processors
	var machine unix.Sysinfo_t
	if unix.Sysinfo(&machine) != nil {
		return most
	}
	memory := machine.Totalram * uint64(machine.Unit)
	return max(1, min(most, int(memory/2/memoryPerSpecs))) // half of the memory is for others
}

// e2eRun is a run of specs.
type e2eRun struct {
	flags    *e2eFlags
	suite    e2e.Suite
	specs    []e2e.Spec // that the flags select
	programs []spec.Proxier
	enforcer spec.Proxier
	cluster  engine.Options
	known    map[string]*expect.Known // by proxier
	versions map[string]string        // by proxier
	builder  *os.File
	stdout   io.Writer
	stderr   io.Writer
}

func (f *e2eFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	r, focus, skip, err := f.plan()
	if err != nil {
		return err
	}
	r.stdout, r.stderr = stdout, stderr
	for _, p := range r.programs {
		r.versions[p.Name()] = f.proxiers.version(p)
	}
	if !sandbox.Inside() {
		if err := r.suite.Build(ctx, stderr, live.Programs()...); err != nil {
			return err
		}
	}
	if err := r.choose(ctx, focus, skip); err != nil {
		return err
	}
	if f.list {
		return r.list()
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	if err := prepare(ctx, r.programs, stderr); err != nil {
		return err
	}
	files, err := sandbox.EnterWith(ctx, func() ([]*os.File, error) {
		builder, err := live.ServeBuilds()
		return []*os.File{builder}, err
	})
	if err != nil {
		return err
	}
	r.builder = files[0]
	silenceKlog()
	seeding, err := f.fault.seed(ctx, &r.programs, &r.enforcer)
	if err != nil {
		return err
	}
	err = r.judge(ctx)
	if seeding != nil {
		fmt.Fprintf(stderr, "the fault %s changed %d objects, inputs of programs and nodes\n", f.fault, seeding.Touched())
	}
	return err
}

// silenceKlog drops what packages of Kubernetes print about connections that clients close.
func silenceKlog() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }

// plan checks all flags and reports every mistake at once.
func (f *e2eFlags) plan() (r *e2eRun, focus, skip *regexp.Regexp, err error) {
	r = &e2eRun{flags: f, suite: e2e.Suite{Version: f.version}, versions: map[string]string{}}
	var errs [10]error
	r.programs, errs[0] = f.proxiers.proxiers()
	r.enforcer, errs[1] = f.proxiers.enforcer()
	errs[2] = f.cluster.set(&r.cluster)
	focus, errs[3] = matching("focus", f.focus)
	skip, errs[4] = matching("skip", f.skip)
	f.out, err = filepath.Abs(f.out)
	errs[5] = inFlag("out", err)
	errs[6] = inFlag("kubernetes-version", release.CheckVersion(f.version))
	if f.parallel < 1 {
		errs[7] = fmt.Errorf("--parallel: %d: want 1 or more", f.parallel)
	}
	if f.nodes < 1 || f.nodes > mostNodes {
		errs[8] = fmt.Errorf("--nodes: %d: want 1 to %d", f.nodes, mostNodes)
	}
	errs[9] = f.fault.check()
	return r, focus, skip, errors.Join(errs[:]...)
}

// choose selects specs, and the expectations for them.
func (r *e2eRun) choose(ctx context.Context, focus, skip *regexp.Regexp) error {
	all, err := r.suite.Specs(ctx)
	if err != nil {
		return err
	}
	if r.suite.Version == release.Default { // others have other specs
		if err := e2e.CheckObstacles(all); err != nil {
			return err
		}
	}
	ids := func() ([]string, error) { return each(all, func(s e2e.Spec) string { return s.Name }), nil }
	r.known, err = r.flags.expect.known(r.programs, r.flags.proxiers.version, r.flags.cluster, ids, nothingShipped)
	if err != nil {
		return err
	}
	r.specs = slices.DeleteFunc(all, func(s e2e.Spec) bool {
		return focus != nil && !focus.MatchString(s.Name) || skip != nil && skip.MatchString(s.Name)
	})
	if len(r.specs) == 0 {
		return fmt.Errorf("no spec matches --focus %q without --skip %q: viplab e2e --list shows all",
			r.flags.focus, r.flags.skip)
	}
	return nil
}

// lab returns what the lab of a proxier has.
func (r *e2eRun) lab(p spec.Proxier) e2e.Lab {
	return e2e.Lab{Enforcer: r.enforcer != nil, SCTP: e2e.KernelHasSCTP(), DualIP: r.cluster.Stack == lab.Dual,
		Slow: r.flags.slow, KubeProxy: isKubeProxy(p), SourceAddress: p.Features()[spec.SourceAddress]}
}

func (r *e2eRun) list() error {
	runnable, omitted := r.suite.Part(r.specs, r.lab(r.programs[0]), "")
	for _, s := range runnable {
		if _, err := fmt.Fprintln(r.stdout, s.Name); err != nil {
			return err
		}
	}
	for _, x := range omitted {
		fmt.Fprintf(r.stdout, "– %s: %s\n", x.Scenario.ID, x.Reason)
	}
	_, err := fmt.Fprintf(r.stdout, "%d specs run, %d do not\n", len(runnable), len(omitted))
	return err
}

// judge runs the specs on one proxier after another and reports.
func (r *e2eRun) judge(ctx context.Context) error {
	began := time.Now()
	var results []spec.Result
	var interrupted error
	for _, p := range r.programs {
		judged, err := r.on(ctx, p)
		results = append(results, judged...)
		if interrupted = err; errors.Is(err, e2e.ErrInterrupted) {
			break
		}
		if err != nil {
			return err
		}
	}
	code, err := r.report(results, began)
	if err != nil {
		return err
	}
	if interrupted != nil && code == 0 {
		return interrupted
	}
	return exitWith(code)
}
