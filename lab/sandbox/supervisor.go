// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded lists the signals by which a person or a service manager ends a program. SIGQUIT is among them because the
// go command sends it to get the stacks of a stuck test, and the relevant stacks are inside.
var forwarded = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

// lifelineFd is init's descriptor of the socket that it shares with the supervisor: the first of ExtraFiles. The files
// of EnterWith follow.
const lifelineFd = 3

const ready = "ready"

// supervise runs the sandbox to its end and returns the exit code for this process.
func supervise(ctx context.Context, files []*os.File) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	lifeline, child, err := start(files)
	if err != nil {
		return 0, err
	}
	defer lifeline.Close()

	// Signals wait in the channel until init can take them: process 1 ignores what it has no handler for.
	word, err := io.ReadAll(io.LimitReader(lifeline, int64(len(ready))))
	if err == nil && string(word) != ready {
		var rest []byte
		rest, err = io.ReadAll(lifeline)
		if message := append(word, rest...); err == nil && len(message) > 0 {
			_ = child.Wait() // init has already reported why it ends
			return 0, decodeError(message)
		}
	}
	defer context.AfterFunc(ctx, func() { signals <- unix.SIGTERM })()
	go forward(signals, child.Process)

	err = child.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for process 1: %w", err)
	}
	return exitCode(child.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// start starts init and returns the supervisor's end of the lifeline. Root without the capability (in a container) may
// still be allowed a user namespace, like any other user.
func start(files []*os.File) (*os.File, *exec.Cmd, error) {
	lifeline, cmd, err := startAs(os.Getuid() != 0, files)
	if errors.Is(err, unix.EPERM) && os.Getuid() == 0 {
		if lifeline, cmd, err := startAs(true, files); err == nil {
			return lifeline, cmd, nil
		}
	}
	if err != nil {
		return nil, nil, explain("create namespaces", err)
	}
	return lifeline, cmd, nil
}

func startAs(rootless bool, files []*os.File) (*os.File, *exec.Cmd, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "lifeline"), os.NewFile(uintptr(pair[1]), "lifeline")
	defer theirs.Close()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = environ(identity{stage: stageInit, outside: networkNamespace(), rootless: rootless, files: len(files)})
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !isTerminal(os.Stdin) {
		cmd.Stdin = os.Stdin
	}
	cmd.ExtraFiles = append([]*os.File{theirs}, files...)
	cmd.SysProcAttr = attributes(rootless)
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, cmd, nil
}

func attributes(rootless bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true, // the terminal's Ctrl-C reaches only the supervisor, which forwards it
	}
	if rootless {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// forward forwards signals to init. A second interrupt kills init, and the kernel ends the rest. Only interrupts count,
// since timeout(1) and service managers send SIGTERM twice without meaning more by it.
func forward(signals <-chan os.Signal, init *os.Process) {
	interrupts := 0
	for s := range signals {
		if s == unix.SIGINT {
			interrupts++
		}
		if interrupts > 1 {
			s = unix.SIGKILL
		}
		init.Signal(s) // fails only if init has ended, which Wait will report
	}
}

// exitCode turns the end of a process into a shell's exit code.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
