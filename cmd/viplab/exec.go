// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/live/registry"
)

// placeFlags choose a lab, and the namespace of pods.
type placeFlags struct {
	lab       labFlag
	namespace string
}

func (f *placeFlags) add(cmd *cobra.Command) {
	f.lab.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of pods without one")
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		return f.objects(cmd, "namespaces"), cobra.ShellCompDirectiveNoFileComp
	}) // fails for an unknown flag
}

func (f *placeFlags) place(name string) live.Place {
	return live.Place{Name: name, Namespace: f.namespace}
}

func newExec() *cobra.Command {
	var of placeFlags
	var container string
	cmd := &cobra.Command{
		Use:   "exec NODE|POD|client|router [-- COMMAND...]",
		Short: "Run a command, or a shell, in a node, a pod, the client or the router of a lab",
		Long: `exec runs a command in a node, a machine outside the cluster, or a container of a pod. In a node it sees
this machine's programs and files; in a container those of the image. Without a command it is a shell. The exit
code is that of the command.

If standard input and output are a terminal, the command gets a terminal of its own.`,
		Example: `  viplab exec client -- curl -s 192.168.7.11:30080
  viplab exec n1 -- ip route
  viplab exec web-0`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: of.complete(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			run := live.ExecArgs{Place: of.place(args[0]), Container: container, Command: args[1:], Env: os.Environ()}
			if len(run.Command) > 0 && run.Command[0] == "--" {
				run.Command = run.Command[1:]
			}
			if len(run.Command) == 0 {
				run.Command = []string{shell()}
			}
			if run.Dir, err = os.Getwd(); err != nil {
				run.Dir = "/"
			}
			return runIn(cmd.Context(), l, run)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the place belongs to the command
	cmd.Flags().StringVarP(&container, "container", "c", "", "container of the pod (default: the pod's default one)")
	of.add(cmd)
	return cmd
}

// shell returns the shell to start without a command.
func shell() string {
	if bash, err := exec.LookPath("bash"); err == nil {
		return bash
	}
	return "sh"
}

// runIn runs a program in a lab, on a terminal of its own if this process has one.
func runIn(ctx context.Context, l registry.Folder, args live.ExecArgs) error {
	if !isTerminal(os.Stdin) {
		return ask(ctx, l, live.Exec, args, nil)
	}
	if !isTerminal(os.Stdout) {
		nothing, err := os.Open(os.DevNull) // a program elsewhere must not take what the person types next
		if err != nil {
			return err
		}
		defer nothing.Close()
		stdio := [3]*os.File{nothing, os.Stdout, os.Stderr}
		return request(ctx, l, control.Request{Command: live.Exec, Args: args, Stdio: stdio})
	}
	args.TTY = true
	return onTerminal(func(stdio [3]*os.File, resized <-chan os.Signal) error {
		return request(ctx, l, control.Request{Command: live.Exec, Args: args, Stdio: stdio, Resized: resized})
	})
}

// drainLimit is how long the last output of a program may take to arrive after its end. A program that it has left in
// the background can hold the terminal open.
const drainLimit = 200 * time.Millisecond

// onTerminal calls f with a new terminal whose other end is that of this process. The program in the lab is the only
// one that the new terminal signals, and it gets SIGHUP when this process ends.
func onTerminal(f func(stdio [3]*os.File, resized <-chan os.Signal) error) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	copySize(master)
	state, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		slave.Close()
		return err
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), state) }() // nothing is left to do if it fails

	sized, printed := make(chan os.Signal), make(chan struct{})
	go func() {
		for s := range resized {
			copySize(master)
			sized <- s
		}
	}()
	go func() { _, _ = io.Copy(master, os.Stdin) }() // ends with this process
	go func() {
		defer close(printed)
		_, _ = io.Copy(os.Stdout, master) // ends with EIO once the other side is closed
	}()
	err = f([3]*os.File{slave, slave, slave}, sized)
	slave.Close()
	select {
	case <-printed:
	case <-time.After(drainLimit):
	}
	return err
}

// copySize gives a terminal the size of this process's terminal.
func copySize(to *os.File) {
	if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(int(to.Fd()), unix.TIOCSWINSZ, size) // a wrong size is no reason to fail
	}
}

// openTerminal opens a pseudo terminal (pty(7)).
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err == nil {
		fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER,
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno == 0 {
			return master, os.NewFile(fd, "terminal"), nil
		}
		err = errno
	}
	master.Close()
	return nil, nil, err
}
