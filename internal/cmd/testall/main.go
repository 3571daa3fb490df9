// SPDX-License-Identifier: Apache-2.0

// Command testall runs all tests: here, and in virtual machines with Debian's kernels those that this kernel cannot
// run. It is what "make test" calls.
//
// A test skips itself where it cannot run. Each one skipped here is tried in the virtual machines; one that is skipped
// there too is reported as skipped. The conformance suite adapts to the kernel instead of skipping, so "viplab doctor"
// says what it needs the virtual machines for.
//
// All binaries of the virtual machines are compiled once. The conformance suite starts in one of them at the beginning,
// beside the tests here, and skipped tests follow as soon as all tests here have ended.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernels are those of scripts/vm.
var kernels = []string{"6.1", "6.12"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	where := flag.String("where", "all", "here, vm (what was or would be skipped here), or all")
	flag.Parse()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	start := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var virtual *vms
	if *where != "here" {
		virtual = startVMs(ctx, packages)
		defer virtual.running.Wait()
	}
	defer cancel()
	here, err := testHere(ctx, packages)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		return 2
	}
	all := []*results{here}
	if virtual != nil {
		all = append(all, virtual.finish(ctx, here)...)
	}
	fmt.Printf("\n%s\n", summary(all, time.Since(start)))
	for _, r := range all {
		if c := r.count(); c.failed+c.broken > 0 || ctx.Err() != nil {
			return 1
		}
	}
	if here.count().passed == 0 {
		fmt.Println("no test passed: nothing is proved")
		return 1
	}
	return 0
}

// command returns a command that is interrupted, and not killed, when the context ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	// Tests clean up when they are asked to end; killing comes after.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output runs a command and returns what it prints, in lines.
func output(ctx context.Context, name string, args ...string) ([]string, error) {
	out, err := command(ctx, name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}
