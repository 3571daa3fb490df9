// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	// One kernel each will do: the tests of overlays and of the proxier itself run under both, and the second runs over
	// IP in IP too.
	"ipip": {"6.1", []string{
		"-viplab.overlay=ipip", "-viplab.ip=dual", "-viplab.pods=bridge", "-viplab.proxier=iptables",
		"-ginkgo.label-filter=priority:P0 || group:sctp",
	}},
	"ip_vs": {"6.12", []string{
		"-viplab.overlay=auto", "-viplab.ip=dual", "-viplab.pods=bridge", "-viplab.proxier=ipvs",
		"-ginkgo.label-filter=priority:P0 || group:sctp || group:ruleset-shape",
	}},
}

type binary struct {
	pkg, dir, path string
	args           []string
}

// vms are the runs in virtual machines.
type vms struct {
	kept    [][]binary    // runs of the suite that have not been started, by kernel
	slots   chan struct{} // of virtual machines that run at the same time
	running sync.WaitGroup

	mu      sync.Mutex
	results []*results // by kernel
}

// startVMs starts runs of the conformance suite, because what they need is known before any test has been skipped here.
// It leaves one processor to the tests that run here at the same time.
func startVMs(ctx context.Context, patterns []string) *vms {
	v := &vms{slots: make(chan struct{}, machines()), kept: make([][]binary, len(kernels))}
	for i, kernel := range kernels {
		v.results = append(v.results, newResults("Linux "+kernel+" (VM)"))
		var err error
		if v.kept[i], err = conformanceRuns(ctx, kernel, patterns); err != nil {
			v.results[i].lost(kernel, err)
		}
	}
	for i := max(0, len(kernels)-machines()+1); i < len(kernels); i++ {
		v.start(ctx, i, v.kept[i])
		v.kept[i] = nil
	}
	return v
}

// start starts runs under a kernel, by its number.
func (v *vms) start(ctx context.Context, i int, runs []binary) {
	if len(runs) == 0 {
		return
	}
	fmt.Printf("\nunder Linux %s, in a virtual machine:\n", kernels[i])
	for _, b := range runs {
		fmt.Printf("  %s %s\n", b.pkg, strings.Join(b.args, " "))
	}
	v.running.Go(func() {
		v.slots <- struct{}{}
		defer func() { <-v.slots }()
		part := newResults("")
		err := part.testInVM(ctx, kernels[i], runs)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.results[i].merge(part)
		if err != nil {
			v.results[i].lost(kernels[i], err)
		}
	})
}

// finish tries the tests that were skipped here, with the runs that have not been started, and returns all results.
func (v *vms) finish(ctx context.Context, here *results) []*results {
	skipped, err := skippedTests(ctx, here.leaves("skip"))
	for i, kernel := range kernels {
		if err != nil {
			v.mu.Lock()
			v.results[i].lost(kernel, err)
			v.mu.Unlock()
		}
		runs := skipped
		if len(runs) > 0 && emulated(ctx, kernel) {
			runs = share(skipped, i, len(kernels))
		}
		v.start(ctx, i, slices.Concat(runs, v.kept[i]))
	}
	v.running.Wait()
	return v.results
}

// emulated reports whether the virtual machine of a kernel has no hardware support. It takes many times as long then.
// An error counts as support: the machine itself fails with it.
func emulated(ctx context.Context, kernel string) bool {
	accelerator, err := output(ctx, "scripts/vm", "--kernel", kernel, "--accelerator")
	return err == nil && accelerator[0] == "tcg"
}

// share returns the part of one of n kernels, by its number. Each run is in one part.
func share(runs []binary, kernel, n int) (out []binary) {
	for i := kernel; i < len(runs); i += n {
		out = append(out, runs[i])
	}
	return out
}

// lost notes and prints why not everything was tested under a kernel.
func (r *results) lost(kernel string, err error) {
	fmt.Fprintf(os.Stderr, "test: Linux %s: %v\n", kernel, err)
	r.breaks(err.Error())
}

// machines returns how many virtual machines run at the same time. Each takes 3 GiB of memory, and one processor where
// it is emulated.
func machines() int {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 1
	}
	const memory = 4 << 30
	return max(1, min(runtime.NumCPU(), int(host.Totalram*uint64(host.Unit)/memory)))
}

// testInVM runs binaries under another kernel and adds their results.
func (r *results) testInVM(ctx context.Context, kernel string, runs []binary) error {
	cmd := command(ctx, "scripts/vm", "--kernel", kernel, "bash", "-c", script(runs))
	err := runAndRead(cmd, func(out io.Reader) error {
		return r.readSections(ctx, out, labelled{"Linux " + kernel + " | ", os.Stdout})
	})
	if err != nil { // sections report failed tests, the exit code does not
		err = fmt.Errorf("scripts/vm: %w", err)
	}
	return err
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

// readSections reads the output of script, and shows failures and counts.
func (r *results) readSections(ctx context.Context, out io.Reader, show io.Writer) error {
	lines := scanLines(out)
	pkg, text := "", &bytes.Buffer{}
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), sectionStart); ok {
			pkg = name
			text.Reset()
		} else if code, ok := strings.CutPrefix(lines.Text(), sectionEnd); ok {
			if err := r.section(ctx, pkg, text, code, show); err != nil {
				return err
			}
			pkg = ""
		} else {
			fmt.Fprintln(text, lines.Text())
		}
	}
	if pkg != "" && lines.Err() == nil {
		r.breaks(pkg+" ended with the machine", text.String())
		fmt.Fprint(show, text)
	}
	return lines.Err()
}

// section converts a binary's output into the events of "go test -json", and reads those.
func (r *results) section(ctx context.Context, pkg string, text *bytes.Buffer, code string, show io.Writer) error {
	before := len(r.broken) + len(r.leaves("fail"))
	cmd := command(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdin = bytes.NewReader(text.Bytes())
	events, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	if err := r.read(bytes.NewReader(events), show); err != nil {
		return err
	}
	if code != "0" && len(r.broken)+len(r.leaves("fail")) == before {
		r.breaks(fmt.Sprintf("%s ended with exit code %s", pkg, code), text.String())
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
		run := pattern(shared[key])
		if key.name != pattern([]string{""}) {
			run += "/" + key.name
		}
		b, err := build(ctx, key.pkg, "-test.run", run)
		if err != nil {
			return nil, err
		}
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

// conformanceRuns returns the runs of the suite under a kernel, for features that this kernel lacks. They are none if
// the patterns of packages leave the suite out.
func conformanceRuns(ctx context.Context, kernel string, patterns []string) ([]binary, error) {
	const suite = module + "/suite"
	packages, err := output(ctx, "go", append([]string{"list"}, patterns...)...)
	if err != nil || !slices.Contains(packages, suite) {
		return nil, err
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
			b, err := build(ctx, suite, c.args...)
			if err != nil {
				return nil, err
			}
			runs = append(runs, b)
		}
	}
	return runs, nil
}

// built are the test binaries of packages, which all kernels share.
var built = map[string]binary{}

// build makes a test binary that needs no library of the host. Without debugging information it is half as large, and
// starts sooner.
func build(ctx context.Context, pkg string, args ...string) (binary, error) {
	if b, ok := built[pkg]; ok {
		b.args = args
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
	return build(ctx, pkg, args...)
}
