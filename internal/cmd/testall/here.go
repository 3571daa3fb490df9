// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// timeout is for a package's tests on a slow machine.
const timeout = "60m"

const module = "github.com/viplab/viplab"

// slow are the packages whose tests take longest. They start first, so that none of them runs alone at the end.
var slow = []string{"/suite", "/cmd/viplab", "/internal/suite/engine", "/internal/suite/netpol"}

// testHere runs the tests of packages on this kernel: those with the race detector and the others at the same time,
// because most tests in a lab wait more than they compute.
func testHere(ctx context.Context, patterns []string) (*results, error) {
	inMemory, inLab, err := splitPackages(ctx, patterns)
	if err != nil {
		return nil, err
	}
	// The virtual machines need binaries without C libraries. The same here means that all packages are compiled once.
	withoutC := append(os.Environ(), "CGO_ENABLED=0")
	parts := []*results{newResults("here"), newResults("here")}
	var all errgroup.Group
	all.Go(func() error { return parts[0].goTest(ctx, withoutC, inLab) })
	all.Go(func() error { return parts[1].goTest(ctx, os.Environ(), inMemory, "-race") })
	if err := all.Wait(); err != nil {
		return nil, err
	}
	parts[0].merge(parts[1])
	return parts[0], nil
}

func (r *results) goTest(ctx context.Context, env, packages []string, flags ...string) error {
	if len(packages) == 0 {
		return nil
	}
	args := slices.Concat([]string{"test", "-json", "-count=1", "-timeout=" + timeout}, flags, packages)
	cmd := command(ctx, "go", args...)
	cmd.Env = env
	err := runAndRead(cmd, func(out io.Reader) error { return r.read(out, os.Stdout) })
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil // a failed test, which is in the results
	}
	return err
}

// runAndRead runs a command and reads its output meanwhile. An error of reading hides that of the command.
func runAndRead(cmd *exec.Cmd, read func(io.Reader) error) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := read(out)
	return cmp.Or(readErr, cmd.Wait())
}

// splitPackages separates the packages whose tests work in memory only. They are tested with the race detector. In a
// lab most of the time passes in the kernel, so the detector would cost much and find little. It needs a C compiler,
// which is optional.
func splitPackages(ctx context.Context, patterns []string) (inMemory, inLab []string, err error) {
	const format = `{{.ImportPath}} {{join .TestImports ","}},{{join .XTestImports ","}}`
	lines, err := output(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	if err != nil {
		return nil, nil, err
	}
	_, noCompiler := exec.LookPath("gcc")
	for _, line := range lines {
		pkg, imports, _ := strings.Cut(line, " ")
		if noCompiler != nil || imports == "," || strings.Contains(imports, "/lab/sandbox") {
			inLab = append(inLab, pkg)
		} else {
			inMemory = append(inMemory, pkg)
		}
	}
	slices.SortStableFunc(inLab, func(a, b string) int { return startOrder(a) - startOrder(b) })
	return inMemory, inLab, nil
}

// startOrder returns a lower number for a package that starts earlier.
func startOrder(pkg string) int {
	if i := slices.Index(slow, strings.TrimPrefix(pkg, module)); i >= 0 {
		return i
	}
	return len(slow)
}

// event is a line of "go test -json" (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64 // in seconds
}

// read reads the events of a test run. It shows the last line of each package and all output of failed tests.
func (r *results) read(events io.Reader, show io.Writer) error {
	said, built := map[test][]string{}, map[string][]string{}
	lines := scanLines(events)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintf(show, "%s\n", lines.Bytes()) // the go command's own complaint
			continue
		}
		t := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			said[t] = keep(said[t], e.Output)
			if e.Test == "" && isPackageLine(e.Output) || isSummary(e.Output) {
				fmt.Fprint(show, e.Output)
			}
		case "build-output":
			built[e.ImportPath] = keep(built[e.ImportPath], e.Output)
			fmt.Fprint(show, e.Output)
		case "pass", "fail", "skip":
			r.end(t, e.Action, said, show)
			r.took[t] = time.Duration(e.Elapsed * float64(time.Second))
			if e.Action == "fail" && e.FailedBuild != "" {
				r.breaks(e.Package+" does not build", built[e.ImportPath]...)
			}
			delete(said, t)
		}
	}
	return lines.Err()
}

func scanLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	return lines
}

// end notes how a test or a package ended.
func (r *results) end(t test, action string, said map[test][]string, show io.Writer) {
	if action == "fail" {
		fmt.Fprint(show, strings.Join(said[t], ""))
	}
	if t.name != "" {
		r.verdict[t] = action
		switch action {
		case "skip":
			r.why[t] = skipReason(said[t])
		case "fail":
			r.why[t] = excerpt(said[t]...)
		}
		return
	}
	// A package fails because of a test, or as a whole: it crashed, hung, or its TestMain refused.
	byTest := func(x test) bool { return x.pkg == t.pkg }
	if action != "fail" || slices.ContainsFunc(r.leaves("fail"), byTest) {
		return
	}
	var unfinished []string
	for _, x := range slices.SortedFunc(maps.Keys(said), compareTests) {
		if x.pkg == t.pkg && x.name != "" {
			unfinished = append(unfinished, said[x]...)
		}
	}
	fmt.Fprint(show, strings.Join(unfinished, ""))
	if len(said[t]) > 0 {
		r.breaks(t.pkg+" ended without a verdict", append(unfinished, said[t]...)...)
	}
}

func isPackageLine(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") || strings.HasPrefix(line, "panic:")
}

// isSummary finds the lines with the counts of the conformance suite.
func isSummary(line string) bool {
	return strings.Contains(line, " passed, ") && strings.Contains(line, " broken") && !strings.HasPrefix(line, " ")
}

// skipReason returns the last output of a test before it was skipped, without the position in the source.
func skipReason(said []string) string {
	for _, line := range slices.Backward(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if _, reason, ok := strings.Cut(line, "_test.go:"); ok {
			_, line, _ = strings.Cut(reason, ": ")
		}
		return line
	}
	return ""
}
