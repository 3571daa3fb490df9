// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runInit returns process 1 of the sandbox: it sets up the mounts and the loopback, starts the program, and reaps
// orphans until the program ends. It does not use os/exec, so waiting for any child takes no other waiter's status.
func runInit() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	unix.CloseOnExec(lifelineFd)
	lifeline := os.NewFile(lifelineFd, "lifeline")

	pid, err := startProgram()
	if err != nil {
		fmt.Fprint(lifeline, err)
		return 2
	}
	if _, err := io.WriteString(lifeline, ready); err != nil {
		return 2 // the supervisor is gone
	}
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // ends when the supervisor ends
		os.Exit(2)
	}()
	go func() {
		for s := range signals {
			syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	return reapUntil(pid)
}

func startProgram() (pid int, err error) {
	// The mounted /proc is still the machine's, so it knows this process by the machine's number for it.
	next := self
	next.stage = stageProgram
	if next.init, err = os.Readlink("/proc/self"); err != nil {
		return 0, err
	}
	if err := makeWorld(); err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   environ(next),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", strings.Join(os.Args, " "), err)
	}
	return pid, nil
}

// reapUntil waits for every child until the program ends, and returns the program's exit code.
func reapUntil(program int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 2 // ECHILD cannot happen: the program is a child until it is reaped here
		}
		if pid == program {
			return exitCode(status)
		}
	}
}
