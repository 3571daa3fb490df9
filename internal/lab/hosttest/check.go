// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Victim is a process of a sandbox.
type Victim int

// The processes of a sandbox, as package sandbox names them.
const (
	Supervisor Victim = iota
	Init
	Program
)

func (v Victim) String() string { return [...]string{"supervisor", "init", "program"}[v] }

// Ending is how a run of the program ends.
type Ending struct {
	// Signal is sent to Victim when After has passed since the start. Zero: the program runs to its end.
	Signal syscall.Signal
	Victim Victim
	After  time.Duration
}

func (e Ending) String() string {
	if e.Signal == 0 {
		return "normal end"
	}
	return fmt.Sprintf("%v to %v after %v", e.Signal, e.Victim, e.After)
}

// Check runs a command that enters a sandbox, ends it, and compares the machine before and after, until the comparison
// holds or ctx ends. It returns how long that took after the end of the command.
func Check(ctx context.Context, cmd *exec.Cmd, ending Ending) (time.Duration, error) {
	before, err := Take()
	if err != nil {
		return 0, err
	}
	if err := runUntil(ctx, cmd, ending); err != nil {
		return 0, fmt.Errorf("%v: %w", ending, err)
	}
	start := time.Now()
	var diff []string
	err = poll(ctx, func() (bool, error) {
		after, err := Take()
		if err != nil {
			return false, err
		}
		diff = before.Diff(after)
		return len(diff) == 0, nil
	})
	if err != nil {
		return 0, fmt.Errorf("%v: the machine is changed: %w\n%s", ending, err, strings.Join(diff, "\n"))
	}
	return time.Since(start), nil
}

func runUntil(ctx context.Context, cmd *exec.Cmd, ending Ending) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if ending.Signal != 0 {
		select {
		case err := <-done:
			return fmt.Errorf("ended before the signal: %w", err)
		case <-time.After(ending.After):
		}
		if err := strike(ctx, cmd.Process.Pid, ending); err != nil {
			return errors.Join(err, cmd.Process.Kill())
		}
	}
	select {
	case err := <-done:
		exit := (*exec.ExitError)(nil)
		if ending.Signal == 0 || err != nil && !errors.As(err, &exit) {
			return err
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("still running: %w", ctx.Err()), cmd.Process.Kill())
	}
}

// strike sends the signal. A victim that is not born yet is waited for.
func strike(ctx context.Context, supervisor int, ending Ending) error {
	pid := supervisor
	for generation := range ending.Victim {
		parent := pid
		err := poll(ctx, func() (bool, error) {
			var err error
			pid, err = child(parent, generation+1)
			return pid != 0, err
		})
		if err != nil {
			return fmt.Errorf("find %v: %w", ending.Victim, err)
		}
	}
	return syscall.Kill(pid, ending.Signal)
}

// child returns the process that a supervisor or an init has started, 0 if there is none yet. It tells init from what
// the Go runtime starts by its being process 1, and the program from adopted orphans by its lower number.
func child(parent int, who Victim) (int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, fmt.Errorf("process %d is gone", parent))
	}
	first := 0
	for _, file := range files {
		list, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		for _, field := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(field)
			if err == nil && (first == 0 || pid < first) && (who != Init || isProcessOne(pid)) {
				first = pid
			}
		}
	}
	return first, nil
}

func isProcessOne(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.HasSuffix(strings.TrimSpace(numbers), "\t1") // in the innermost namespace
		}
	}
	return false
}

// poll asks until the answer is yes, an error, or ctx ends.
func poll(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
