// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// conformance is how the suite is run on kernels that have what this one lacks: by the feature that viplab doctor finds
// lacking, the kernel and the suite's flags. An emulated machine takes many times as long, so only what matters most is
// run there, and what only these kernels can do.
var conformance = map[string]struct {
	kernel string
	args   []string
}{
	// One kernel each will do: the tests of overlays and of the proxier itself run under both, and the second runs over IP
	// in IP too.
	"ipip": {"6.1", []string{
		"-viplab.overlay=ipip", "-viplab.ip=dual", "-viplab.pods=bridge", "-viplab.proxier=iptables",
		"-ginkgo.label-filter=priority:P0 || group:sctp",
	}},
	"ip_vs": {"6.12", []string{
		"-viplab.overlay=auto", "-viplab.ip=dual", "-viplab.pods=bridge", "-viplab.proxier=ipvs",
		"-ginkgo.label-filter=priority:P0 || group:sctp || group:ruleset-shape",
	}},
}

// binary is a test binary to run with some arguments.
type binary struct {
	pkg, dir, path string
	args           []string
}

// testInVMs runs under the other kernels what could not run here, side by side if the machine is large enough.
func testInVMs(ctx context.Context, here *results) []*results {
	all := make([]*results, len(kernels))
	runs := make([][]binary, len(kernels))
	for i, kernel := range kernels { // all is built before anything runs: it is the same binaries that they run
		all[i] = newResults("Linux " + kernel + " (VM)")
		var err error
		if runs[i], err = runsUnder(ctx, kernel, here); err != nil {
			all[i].lost(kernel, err)
		}
	}
	slots := make(chan struct{}, machines())
	var running sync.WaitGroup
	for i, kernel := range kernels {
		if len(runs[i]) == 0 {
			continue
		}
		fmt.Printf("\nunder Linux %s, in a virtual machine:\n", kernel)
		for _, b := range runs[i] {
			fmt.Printf("  %s %s\n", b.pkg, strings.Join(b.args, " "))
		}
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := all[i].testInVM(ctx, kernel, runs[i]); err != nil {
				all[i].lost(kernel, err)
			}
		})
	}
	running.Wait()
	return all
}

// lost tells that not all was tested under a kernel, and why.
func (r *results) lost(kernel string, err error) {
	fmt.Fprintf(os.Stderr, "test: Linux %s: %v\n", kernel, err)
	r.fault(err)
}

// machines is how many virtual machines run at the same time. Each takes 3 GiB of memory, and one processor where it is
// emulated.
func machines() int {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 1
	}
	const memory = 4 << 30
	return max(1, min(runtime.NumCPU(), int(host.Totalram*uint64(host.Unit)/memory)))
}

// runsUnder are what could not run here and is to be tried under another kernel.
func runsUnder(ctx context.Context, kernel string, here *results) ([]binary, error) {
	runs, err := skippedTests(ctx, here.leaves("skip"))
	if err != nil {
		return nil, err
	}
	suite, err := conformanceRuns(ctx, kernel, here)
	return append(runs, suite...), err
}

// testInVM takes the results of binaries that run under another kernel.
func (r *results) testInVM(ctx context.Context, kernel string, runs []binary) error {
	cmd := command(ctx, "scripts/vm", "--kernel", kernel, "bash", "-c", script(runs))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := r.readSections(ctx, out, labelled{"Linux " + kernel + " | ", os.Stdout})
	err = cmd.Wait()
	if readErr == nil && err != nil {
		readErr = fmt.Errorf("scripts/vm: %w", err) // failed tests are told by sections, not by the exit code
	}
	return readErr
}

// labelled puts a label in front of each line, and ends the last one: two machines write at the same time.
type labelled struct {
	label string
	to    io.Writer
}

func (l labelled) Write(text []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		fmt.Fprintf(&out, "%s%s\n", l.label, bytes.TrimSuffix(line, []byte("\n")))
	}
	if _, err := l.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Each binary's output is a section: a line that names the package, what the binary printed, and its exit code.
const (
	sectionStart = "\x01package "
	sectionEnd   = "\x01exit "
)

// script runs the binaries one after the other.
func script(runs []binary) string {
	var b strings.Builder
	for _, run := range runs {
		fmt.Fprintf(&b, "printf '\\001package %%s\\n' %s; cd %s; %s", run.pkg, quote(run.dir), quote(run.path))
		for _, arg := range append([]string{"-test.v=test2json", "-test.timeout=" + timeout}, run.args...) {
			b.WriteString(" " + quote(arg))
		}
		b.WriteString(" 2>&1; printf '\\n\\001exit %s\\n' $?\n")
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// readSections takes the output of script, and shows what is worth it.
func (r *results) readSections(ctx context.Context, out io.Reader, show io.Writer) error {
	lines := bufio.NewReader(out)
	pkg, text := "", &bytes.Buffer{}
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			if pkg != "" {
				r.broken = append(r.broken, pkg+" ended with the machine")
				fmt.Fprint(show, text)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if name, ok := strings.CutPrefix(line, sectionStart); ok {
			pkg = strings.TrimSpace(name)
			text.Reset()
		} else if code, ok := strings.CutPrefix(line, sectionEnd); ok {
			if err := r.section(ctx, pkg, text, strings.TrimSpace(code), show); err != nil {
				return err
			}
			pkg = ""
		} else {
			text.WriteString(line)
		}
	}
}

// section turns a binary's output into the events that "go test" would have made of it, and takes those.
func (r *results) section(ctx context.Context, pkg string, text *bytes.Buffer, code string, show io.Writer) error {
	before := len(r.broken) + len(r.leaves("fail"))
	cmd := command(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdin = text
	events, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	if err := r.read(bytes.NewReader(events), show); err != nil {
		return err
	}
	if code != "0" && len(r.broken)+len(r.leaves("fail")) == before {
		r.broken = append(r.broken, fmt.Sprintf("%s ended with exit code %s", pkg, code))
	}
	return nil
}

// skippedTests returns the runs that try the skipped tests again. A process takes long to start in an emulated machine,
// so tests of a package share one if their subtests have the same names, or if they have none.
func skippedTests(ctx context.Context, skipped []test) ([]binary, error) {
	subtests := map[test][]string{} // by top-level test
	for _, t := range skipped {
		top, sub, _ := strings.Cut(t.name, "/")
		subtests[test{t.pkg, top}] = append(subtests[test{t.pkg, top}], sub)
	}
	shared := map[test][]string{} // the names of the tests, by package and the pattern of their subtests
	var order []test
	for _, top := range slices.SortedFunc(maps.Keys(subtests), compareTests) {
		key := test{top.pkg, pattern(subtests[top])}
		if shared[key] == nil {
			order = append(order, key)
		}
		shared[key] = append(shared[key], top.name)
	}
	var runs []binary
	for _, key := range order {
		b, err := build(ctx, key.pkg)
		if err != nil {
			return nil, err
		}
		run := pattern(shared[key])
		if key.name != pattern([]string{""}) {
			run += "/" + key.name
		}
		b.args = []string{"-test.run", run}
		runs = append(runs, b)
	}
	return runs, nil
}

// pattern matches the names of tests, level by level: "^(TestX)$/^(a|b)$". It may match combinations of levels that are
// not among them.
func pattern(names []string) string {
	var levels [][]string
	for _, name := range names {
		for i, part := range strings.Split(name, "/") {
			if i == len(levels) {
				levels = append(levels, nil)
			}
			if part = regexp.QuoteMeta(part); !slices.Contains(levels[i], part) {
				levels[i] = append(levels[i], part)
			}
		}
	}
	var parts []string
	for _, l := range levels {
		parts = append(parts, "^("+strings.Join(l, "|")+")$")
	}
	return strings.Join(parts, "/")
}

// conformanceRuns are the runs of the suite under a kernel for what this one lacks. They are none if the suite was not
// asked for.
func conformanceRuns(ctx context.Context, kernel string, here *results) ([]binary, error) {
	const suite = module + "/suite"
	if !slices.ContainsFunc(slices.Collect(maps.Keys(here.verdict)), func(t test) bool { return t.pkg == suite }) {
		return nil, nil
	}
	report, err := command(ctx, "bin/viplab", "doctor", "--json").Output()
	var found struct {
		Findings []struct {
			Feature string
			InVM    bool `json:"in_vm"`
		}
	}
	if jsonErr := json.Unmarshal(report, &found); jsonErr != nil {
		return nil, fmt.Errorf("viplab doctor --json: %w", errors.Join(err, jsonErr))
	}
	var runs []binary
	for _, f := range found.Findings {
		if c := conformance[f.Feature]; c.kernel == kernel && f.InVM {
			b, err := build(ctx, suite)
			if err != nil {
				return nil, err
			}
			b.args = c.args
			runs = append(runs, b)
		}
	}
	return runs, nil
}

// built are the test binaries of packages, which all kernels share.
var built = map[string]binary{}

// build makes a test binary that needs no library of the host. Without debugging information it is half as large, and
// starts sooner.
func build(ctx context.Context, pkg string) (binary, error) {
	if b, ok := built[pkg]; ok {
		return b, nil
	}
	dir, err := output(ctx, "go", "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return binary{}, err
	}
	path, err := filepath.Abs(filepath.Join("bin", "vm", strings.ReplaceAll(pkg, "/", "_")+".test"))
	if err != nil {
		return binary{}, err
	}
	cmd := command(ctx, "go", "test", "-c", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout = os.Stderr
	if err := cmd.Run(); err != nil {
		return binary{}, fmt.Errorf("build the tests of %s: %w", pkg, err)
	}
	built[pkg] = binary{pkg: pkg, dir: dir[0], path: path}
	return built[pkg], nil
}
