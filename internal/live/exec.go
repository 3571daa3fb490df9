// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Exec runs a program in a lab.
const Exec = "exec" // ExecArgs, no result

// ExecArgs are the arguments of Exec.
type ExecArgs struct {
	Place
	Container string // of a pod; empty means its default one
	Command   []string
	// TTY means that the standard streams are a terminal, which becomes that of the program alone.
	TTY bool
	// Env and Dir are those of the command that asks.
	Env []string
	Dir string
}

// notFound is a shell's exit code for a program that does not exist.
const notFound = 127

func (l *Lab) exec(ctx context.Context, call *control.Call) (any, error) {
	var args ExecArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	at, err := l.find(args.Place)
	if err != nil {
		return nil, err
	}
	run := at.ns().Run
	if at.pod != nil {
		key := store.KeyOf(at.pod)
		if l.standing.Cluster().Containers() != nil {
			return nil, l.execInPod(ctx, call, key, args)
		}
		run = func(cmd *exec.Cmd) error { return l.standing.Cluster().Run(key.Namespace, key.Name, cmd) }
	}
	cmd, err := program(ctx, call, args)
	if err != nil {
		fmt.Fprintf(call.Stderr, "%s: %v\n", args.Name, err)
		return nil, &control.ExitError{Code: notFound}
	}
	err = run(cmd)
	if ctx.Err() != nil && cmd.Process != nil {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // what its children left; fails if there is nothing
	}
	return nil, exitOf(cmd, err)
}

// execInPod runs a program in a container, as "kubectl exec" does.
func (l *Lab) execInPod(ctx context.Context, call *control.Call, pod store.Key, args ExecArgs) error {
	streams := access.Streams{In: call.Stdin, Out: call.Stdout, Err: call.Stderr, TTY: args.TTY}
	if args.TTY {
		// The container has a terminal of its own, so this one only passes bytes on.
		if _, err := term.MakeRaw(int(call.Stdin.Fd())); err != nil {
			return err
		}
		sizes := make(chan access.TerminalSize)
		streams.Err, streams.Resize = nil, sizes
		go func() {
			defer close(sizes)
			followSize(ctx, call, sizes)
		}()
	}
	err := l.standing.Cluster().Containers().Exec(ctx, pod, args.Container, args.Command, streams)
	if exit := (*access.ExitError)(nil); errors.As(err, &exit) {
		return &control.ExitError{Code: exit.Code}
	}
	return err
}

// followSize passes on the size of a terminal, at first and after every change, until the context ends.
func followSize(ctx context.Context, call *control.Call, sizes chan<- access.TerminalSize) {
	for {
		size, err := unix.IoctlGetWinsize(int(call.Stdin.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return
		}
		select {
		case sizes <- access.TerminalSize{Width: size.Col, Height: size.Row}:
		case <-ctx.Done():
			return
		}
		select {
		case <-call.Resized:
		case <-ctx.Done():
			return
		}
	}
}

// hangUpLimit is how long a program may take to end after the command that has started it.
const hangUpLimit = time.Second

// program returns the program to run, in a process group or a session of its own. It gets SIGHUP when the context ends.
func program(ctx context.Context, call *control.Call, args ExecArgs) (*exec.Cmd, error) {
	path, err := lookPath(args)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args.Command[1:]...)
	cmd.Args[0] = args.Command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = call.Stdin, call.Stdout, call.Stderr
	cmd.Env = args.Env
	cmd.Dir = "/"
	if info, err := os.Stat(args.Dir); err == nil && info.IsDir() { // not so below /run
		cmd.Dir = args.Dir
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if args.TTY {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGHUP) }
	cmd.WaitDelay = hangUpLimit
	return cmd, nil
}

// lookPath finds a program in the PATH of this process, which has the folders of root's programs.
func lookPath(args ExecArgs) (string, error) {
	if len(args.Command) == 0 {
		return "", errors.New("want a command")
	}
	name := args.Command[0]
	if filepath.Base(name) != name && !filepath.IsAbs(name) {
		name = filepath.Join(args.Dir, name)
	}
	return exec.LookPath(name)
}

// exitOf turns the end of a program into that of the request.
func exitOf(cmd *exec.Cmd, err error) error {
	if cmd.ProcessState == nil {
		return err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if code != 0 {
		return &control.ExitError{Code: code}
	}
	return nil
}
