// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// timeout is for a package's tests on a slow machine.
const timeout = "40m"

// testHere runs the tests of packages on this kernel.
func testHere(ctx context.Context, patterns []string) (*results, error) {
	quick, rest, err := splitPackages(ctx, patterns)
	if err != nil {
		return nil, err
	}
	r := newResults("here")
	for _, part := range []struct {
		packages []string
		flags    []string
	}{{quick, []string{"-race"}}, {rest, nil}} {
		if len(part.packages) == 0 {
			continue
		}
		args := slices.Concat([]string{"test", "-json", "-count=1", "-timeout=" + timeout}, part.flags, part.packages)
		cmd := command(ctx, "go", args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		readErr := r.read(out, os.Stdout)
		err = cmd.Wait() // a failed test is an error too, and is in the results
		if exit := (*exec.ExitError)(nil); readErr != nil || err != nil && !errors.As(err, &exit) {
			return nil, errors.Join(readErr, err)
		}
	}
	return r, nil
}

// splitPackages puts those apart that are tested with the race detector: those that work in memory only. In a lab most
// of the time passes in the kernel, and the detector's cost buys little. It needs a C compiler, which is not demanded.
func splitPackages(ctx context.Context, patterns []string) (quick, rest []string, err error) {
	const format = `{{.ImportPath}} {{join .TestImports ","}},{{join .XTestImports ","}}`
	lines, err := output(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	if err != nil {
		return nil, nil, err
	}
	_, noCompiler := exec.LookPath("gcc")
	for _, line := range lines {
		pkg, imports, _ := strings.Cut(line, " ")
		if noCompiler != nil || imports == "," || strings.Contains(imports, "/lab/sandbox") {
			rest = append(rest, pkg)
		} else {
			quick = append(quick, pkg)
		}
	}
	return quick, rest, nil
}

// event is a line of "go test -json" (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// read takes the events of a test run. It shows the line with which each package ends, and all that failed tests said.
func (r *results) read(events io.Reader, show io.Writer) error {
	said := map[test][]string{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			fmt.Fprintf(show, "%s", line) // the go command's own complaint
			continue
		}
		t := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			said[t] = append(said[t], e.Output)
			if e.Test == "" && isPackageLine(e.Output) || isTally(e.Output) {
				fmt.Fprint(show, e.Output)
			}
		case "build-output":
			fmt.Fprint(show, e.Output)
		case "pass", "fail", "skip":
			r.end(t, e.Action, said, show)
			if e.Action == "fail" && e.FailedBuild != "" {
				r.broken = append(r.broken, e.Package+" does not build")
			}
			delete(said, t)
		}
	}
}

// end notes how a test or a package ended.
func (r *results) end(t test, action string, said map[test][]string, show io.Writer) {
	if action == "fail" {
		fmt.Fprint(show, strings.Join(said[t], ""))
	}
	if t.name != "" {
		r.verdict[t] = action
		if action == "skip" {
			r.reasons[t] = skipReason(said[t])
		}
		return
	}
	// A package fails by its tests, or by itself: it crashed, hung, or its TestMain refused.
	byTest := false
	for x, v := range r.verdict {
		byTest = byTest || x.pkg == t.pkg && v == "fail"
	}
	if action != "fail" || byTest {
		return
	}
	if len(said[t]) > 0 {
		r.broken = append(r.broken, t.pkg+" ended without a verdict")
	}
	for x, lines := range said {
		if x.pkg == t.pkg && x.name != "" {
			fmt.Fprint(show, strings.Join(lines, ""))
		}
	}
}

func isPackageLine(line string) bool {
	for _, word := range []string{"ok  \t", "FAIL\t", "panic:"} {
		if strings.HasPrefix(line, word) {
			return true
		}
	}
	return false
}

// isTally finds the lines in which the conformance suite counts.
func isTally(line string) bool {
	return strings.Contains(line, " passed, ") && strings.Contains(line, " broken") && !strings.HasPrefix(line, " ")
}

// skipReason is the last thing that a test said before it was skipped, without where in the source it said so.
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
