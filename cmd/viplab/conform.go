// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite"
	"github.com/viplab/viplab/suite/spec"
)

// conformFlags are the flags of "viplab conform" as typed.
type conformFlags struct {
	judged     judgedFlags
	cluster    clusterFlags
	focus      string
	out        string
	shard      string
	trySkipped bool
	keepFailed bool
	list       bool
	fault      string
}

func newConform() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Prove with real packets which promises of the Service API a proxier keeps",
		Long: `conform builds a cluster of three nodes out of network namespaces, places the proxier on every node, and runs the
scenarios of the catalogue in it. It prints a matrix and leaves report.json, report.html, junit.xml
and, for each failure, rules, conntrack entries, logs and a packet capture in the output folder.

It works inside namespaces of its own and changes nothing of the machine. Without root it needs a kernel that allows
user namespaces; "viplab doctor" tells.

Exit code: 0 all that ran passed, and something ran; 1 a failure; 2 the harness broke, nothing ran, or bad usage.`,
		Example: `  viplab conform
  viplab conform --proxier iptables,iptables-legacy --ip dual --pods routed
  viplab conform --focus '^etp-local-' --out results
  viplab conform --proxier nftables --enforcer policy-nftables
  viplab conform --proxier kube-proxy-iptables,kube-proxy-nftables
  viplab conform --exec './my-proxy --kubeconfig {{.Kubeconfig}} --node {{.NodeName}}' --features -nodeport-localhost`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.list {
				return listScenarios(cmd.OutOrStdout())
			}
			return conform(cmd.Context(), &f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.judged.add(flags, "iptables")
	f.cluster.add(cmd)
	flags.StringVar(&f.focus, "focus", "", "run only scenarios whose id matches this regular expression")
	flags.StringVar(&f.out, "out", "viplab-out", "folder for the report and for what failures leave behind")
	flags.StringVar(&f.shard, "shard", "", "run part I of N of the scenarios, written I/N")
	flags.BoolVar(&f.trySkipped, "try-skipped", false,
		"also run scenarios that need what the proxier does not declare; one that passes is reported as a failure of the "+
			"declaration")
	flags.BoolVar(&f.keepFailed, "keep-failed", false,
		"keep the cluster of a failed scenario, tell how to enter it, and wait for Ctrl-C")
	flags.StringVar(&f.fault, "fault", "", "put this fault into the proxiers, to see what notices it (viplab prove "+
		"--list shows their names)")
	flags.BoolVar(&f.list, "list", false, "list the scenarios instead of running them")
	complete(cmd, "proxier", proxierNames()...)
	complete(cmd, "enforcer", enforcerNames()...)
	complete(cmd, "fault", faultNames()...)
	return cmd
}

func listScenarios(w io.Writer) error {
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	for _, s := range all {
		if _, err := fmt.Fprintf(w, "%-40s %s  %s\n", s.ID, s.Priority, s.Why); err != nil {
			return err
		}
	}
	return nil
}

// options checks all flags before anything is built and reports every mistake at once.
func (f *conformFlags) options() (engine.Options, error) {
	o := engine.Options{TrySkipped: f.trySkipped, KeepFailed: f.keepFailed}
	var errs []error
	collect := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	var err error
	o.Scenarios, err = scenarios.All()
	errs = append(errs, err)
	o.Proxiers, err = f.judged.proxiers()
	errs = append(errs, err)
	o.Enforcer, err = f.judged.enforcer()
	errs = append(errs, err)
	o.Flags = f.flagsOf
	if f.fault != "" {
		_, err = faults.Find(f.fault)
		collect("fault", err)
	}
	if err := f.cluster.set(&o); err != nil {
		errs = append(errs, err)
	}
	if f.focus != "" {
		o.Focus, err = regexp.Compile(f.focus)
		collect("focus", err)
	}
	if f.shard != "" {
		o.Shard, o.Shards, err = parseShard(f.shard)
		collect("shard", err)
	}
	o.Out, err = filepath.Abs(f.out)
	collect("out", err)
	return o, errors.Join(errs...)
}

// flagsOf are the flags that run one of the proxiers again.
func (f *conformFlags) flagsOf(p spec.Proxier) string {
	if f.fault == "" {
		return f.judged.of(p)
	}
	return f.judged.of(p) + " --fault " + f.fault
}

func parseShard(text string) (shard, shards int, err error) {
	var rest string
	n, _ := fmt.Sscanf(text+" ", "%d/%d%s", &shard, &shards, &rest)
	if n != 2 || shard < 1 || shard > shards {
		return 0, 0, fmt.Errorf("%q: want I/N with 1 <= I <= N, for example 1/4", text)
	}
	return shard, shards, nil
}

func conform(ctx context.Context, f *conformFlags, stdout, stderr io.Writer) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	if err := prepare(ctx, o.Proxiers, stderr); err != nil {
		return err
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	if f.fault != "" {
		if _, err := seed(ctx, f.fault, &o); err != nil {
			return err
		}
	}
	progress := newProgress(stderr)
	o.Listen = progress.listen
	part := &suite.Part{Title: "conformance", Options: o}
	began := time.Now()
	if err := runGinkgo(ctx, part, o.Out, stdout, progress); err != nil {
		return err
	}
	results := report.New(version(), kernelRelease(), part.Note(), part.Results())
	results.WallMS = time.Since(began).Milliseconds()
	if err := writeReport(results, o.Out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%s, kernel %s, %.1f s\n\n", part.Note(), kernelRelease(), float64(results.WallMS)/1000)
	if err := results.WriteMatrix(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nreport: %s and report.html\n", filepath.Join(o.Out, "report.json"))
	waitForKept(ctx, part, stdout)
	if err := part.Close(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if code := results.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// writeReport leaves report.json and the page beside it, with the scenarios that were asked for.
func writeReport(r report.Report, out string) error {
	if err := r.WriteJSON(out); err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, x := range r.Results {
		asked[x.Scenario] = true
	}
	page, err := pageOf("viplab: conformance", func(id string) bool { return asked[id] })
	if err != nil {
		return err
	}
	return r.WritePageFile(filepath.Join(out, "report.html"), page)
}

// runGinkgo runs the part and prints Ginkgo's account of it once progress has had its say: both at the same time would
// be hard to read.
func runGinkgo(ctx context.Context, part *suite.Part, out string, stdout io.Writer, p *progress) error {
	var account bytes.Buffer
	formatter.ColorableStdOut = &account
	config, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = !isTerminal(stdout)
	reporter.JUnitReport = filepath.Join(out, "junit.xml")
	_, err := suite.Run(ctx, verdict{}, "viplab conform", []*suite.Part{part}, config, reporter)
	p.end()
	if err != nil {
		return err
	}
	_, err = account.WriteTo(stdout)
	return err
}

// waitForKept tells how to enter clusters that were kept and keeps them until Ctrl-C.
func waitForKept(ctx context.Context, part *suite.Part, w io.Writer) {
	doors := part.Kept()
	if len(doors) == 0 {
		return
	}
	fmt.Fprintf(w, "\nkept until Ctrl-C; to look around, put before a command:\n")
	for _, d := range doors {
		fmt.Fprintln(w, " ", d)
	}
	<-ctx.Done()
}

// verdict lets Ginkgo run outside of "go test". Failures are counted from the results.
type verdict struct{}

func (verdict) Fail() {}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
