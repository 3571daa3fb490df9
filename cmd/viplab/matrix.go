// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
)

// matrixFile is a file of "viplab matrix". Each list that is missing has one entry: the default of "viplab conform".
type matrixFile struct {
	// Kernels are "here", the kernel of this machine, and those of the virtual machine: "6.1", "6.12", "uml".
	Kernels  []string `json:"kernels"`
	Proxiers []string `json:"proxiers"`
	IP       []string `json:"ip"`
	Pods     []string `json:"pods"`
	// Flags are further flags of "viplab conform", one word each.
	Flags []string `json:"flags"`
}

const here = "here"

// readMatrix decodes a file. It is strict about unknown and duplicate fields, and lists every mistake.
func readMatrix(source string, text []byte) (*matrixFile, error) {
	var f matrixFile
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w\n(a matrix may have lists of kernels, proxiers, ip, pods and flags; see docs/ci.md)",
			source, err)
	}
	var errs []error
	check := func(name string, list *[]string, fallback string, valid func(string) error) {
		if len(*list) == 0 {
			*list = []string{fallback}
		}
		for i, entry := range *list {
			if err := valid(entry); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", source, name, err))
			}
			if slices.Contains((*list)[:i], entry) {
				errs = append(errs, fmt.Errorf("%s: %s: %q is given twice", source, name, entry))
			}
		}
	}
	check("kernels", &f.Kernels, here, oneOf(here, "6.1", "6.12", "uml"))
	check("proxiers", &f.Proxiers, "iptables", oneOf(proxierNames()...))
	check("ip", &f.IP, "dual", func(s string) error { _, err := lab.ParseStack(s); return err })
	check("pods", &f.Pods, "bridge", func(s string) error { _, err := lab.ParsePodNetwork(s); return err })
	return &f, errors.Join(errs...)
}

func oneOf(known ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(known, s) {
			return nil
		}
		return fmt.Errorf("%q: want one of %s", s, strings.Join(known, ", "))
	}
}

// matrixRun is one run of "viplab conform": of all proxiers, in one kind of cluster, on one kernel.
type matrixRun struct{ kernel, ip, pods string }

// name is that of the run's folder.
func (r matrixRun) name() string { return "linux-" + r.kernel + "-ip-" + r.ip + "-" + r.pods }

// runs returns the runs of a shard, or all for 0 of 0.
func (f *matrixFile) runs(shard, shards int) (runs []matrixRun) {
	n := 0
	for _, kernel := range f.Kernels {
		for _, ip := range f.IP {
			for _, pods := range f.Pods {
				if shards == 0 || n%shards == shard-1 {
					runs = append(runs, matrixRun{kernel, ip, pods})
				}
				n++
			}
		}
	}
	return runs
}

// command returns the words of a run that writes its report into a folder.
func (f *matrixFile) command(r matrixRun, folder, self, vm string) []string {
	words := []string{self, "conform", "--proxier", strings.Join(f.Proxiers, ","), "--ip", r.ip, "--pods", r.pods,
		"--out", folder}
	if r.kernel != here {
		words = append([]string{vm, "--kernel", r.kernel, "--out", folder}, words...)
	}
	return append(words, f.Flags...)
}

func newMatrix() *cobra.Command {
	var out, shard string
	var list bool
	cmd := &cobra.Command{
		Use:   "matrix FILE",
		Short: "Judge proxiers on several kernels, IP families and pod networks",
		Long: `matrix runs "viplab conform" for each combination of what a file lists, one after the other:

  kernels: [here, "6.1", "6.12"]   # here is this machine's; the others are those of a virtual machine
  proxiers: [iptables, nftables]
  ip: [dual, "4", "6"]
  pods: [bridge, routed]
  flags: [--focus, ^clusterip-]    # further flags of conform

The report of each run, and what it printed, are in a folder of their own. "viplab catalogue" makes one table of all.
Kernels other than "here" need vmrun beside viplab or in PATH, which scripts/vm builds.

Exit code: 0 if those of all runs are; 1 if a scenario failed; 2 if a run broke, or for bad usage.`,
		Example: `  viplab matrix matrix.yaml --out results
  viplab matrix matrix.yaml --shard 1/4
  viplab catalogue results/*`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runMatrix(cmd.Context(), cmd.OutOrStdout(), args[0], out, shard, list)
		},
	}
	cmd.Flags().StringVar(&out, "out", "viplab-out", "folder for the folders of the runs")
	cmd.Flags().StringVar(&shard, "shard", "", "do part I of N of the runs, written I/N")
	cmd.Flags().BoolVar(&list, "list", false, "print the commands of the runs instead of running them")
	return cmd
}

func runMatrix(ctx context.Context, w io.Writer, path, out, shard string, list bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := readMatrix(path, text)
	if err != nil {
		return err
	}
	var part, parts int
	if shard != "" {
		if part, parts, err = report.ParseShard(shard); err != nil {
			return inFlag("shard", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runs := f.runs(part, parts)
	vm, err := findVM(self, runs)
	if err != nil && !list {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	worst := 0
	for i, r := range runs {
		words := f.command(r, filepath.Join(out, r.name()), self, cmp.Or(vm, "vmrun"))
		if list {
			fmt.Fprintln(w, strings.Join(words, " "))
			continue
		}
		code, err := conformIn(ctx, filepath.Join(out, r.name()), words)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d of %d: %s: exit code %d\n", i+1, len(runs), r.name(), code)
		worst = max(worst, min(code, 2))
	}
	if list {
		return nil
	}
	return errors.Join(f.printSums(w, out, runs), exitWith(worst))
}

// findVM returns the path of vmrun, if a run needs it.
func findVM(self string, runs []matrixRun) (string, error) {
	if !slices.ContainsFunc(runs, func(r matrixRun) bool { return r.kernel != here }) {
		return "", nil
	}
	beside := filepath.Join(filepath.Dir(self), "vmrun")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("vmrun")
	if err != nil {
		return "", errors.New("kernels other than \"here\" need vmrun beside viplab or in PATH: in the source of viplab, " +
			"\"scripts/vm true\" builds bin/vmrun")
	}
	return path, nil
}

// conformIn runs a command, writes what it prints into a file of the folder, and returns its exit code. An older report
// in the folder is removed, so that none is taken for that of this run.
func conformIn(ctx context.Context, folder string, words []string) (int, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	if err := os.Remove(filepath.Join(folder, "report.json")); err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	log, err := os.Create(filepath.Join(folder, "output.txt"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	runtime.LockOSThread() // Pdeathsig is tied to the forking thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 2, nil // ended by a signal
}

// printSums prints a row for each run and a column for each proxier.
func (f *matrixFile) printSums(w io.Writer, out string, runs []matrixRun) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nrun\t%s\n", strings.Join(f.Proxiers, "\t"))
	for _, r := range runs {
		found, err := report.Read(filepath.Join(out, r.name()))
		cells := each(f.Proxiers, func(name string) string {
			for _, p := range found.Proxiers {
				if p.Name == name {
					return fmt.Sprintf("%s: %d passed, %d failed, %d broken", p.Verdict, p.Passed, p.Failed, p.Broken)
				}
			}
			return "no report"
		})
		if err != nil {
			cells = []string{"no report: see " + filepath.Join(out, r.name(), "output.txt")}
		}
		fmt.Fprintf(t, "%s\t%s\n", r.name(), strings.Join(cells, "\t"))
	}
	return t.Flush()
}
