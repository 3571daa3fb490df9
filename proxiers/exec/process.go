// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/netns"
)

// grace is how long a command may take to end after SIGTERM, on a machine that is not emulated.
const grace = 10 * time.Second

// lastWords is how long its output is read on after its end: children that it left behind may hold the pipe open.
const lastWords = 200 * time.Millisecond

// process is one life of a command.
type process struct {
	pid       int
	began     time.Time
	done      chan struct{} // closed once it has ended and its output has been read
	end       string        // how it ended, in words; written before done is closed, like the next
	succeeded bool          // it ended by itself, with exit code 0
	output    *output
	rounds    *rounds // nil if nothing is known of them
}

// start runs a command in a network namespace, with mounts of its own and its own process group.
func start(ns *netns.NS, cmd *osexec.Cmd, log io.Writer, how Command) (*process, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	prepare := func() error { // on the thread that starts the command, and ends with it
		if err := mountNode(cmd.Dir); err != nil || !how.KeepFileLimit {
			return err
		}
		return keepFileLimit()
	}
	if err := ns.WithMounts(prepare, cmd.Start); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p := &process{pid: cmd.Process.Pid, began: time.Now(), done: make(chan struct{})}
	if how.Rounds != nil {
		p.rounds = newRounds(*how.Rounds)
		log = io.MultiWriter(log, p.rounds)
	}
	p.output = newOutput(r, log)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.output.drain()
		r.Close()
	}()
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in ProcessState
		p.succeeded = cmd.ProcessState.Success()
		p.end = fmt.Sprintf("%s after %s", ending(cmd.ProcessState), time.Since(p.began).Round(time.Millisecond))
		_ = p.signal(unix.SIGKILL)                       // what it left behind; mostly that is nothing
		_ = r.SetReadDeadline(time.Now().Add(lastWords)) // a pipe in non-blocking mode takes one
		<-drained
	}()
	return p, nil
}

// pipe is like os.Pipe, but the write end, which children get, stays in blocking mode.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("pipe: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}

// mountNode makes the calling thread see the machine as a process of the node does, where the folder stays visible
// wherever it is. It gives the node what others must not share: /run, where iptables-legacy keeps its lock and daemons
// their sockets, and a /sys that shows the node's own devices. As in the sandbox, /sys is read-only: what lies outside
// of namespaces, such as the size of the machine's conntrack table, is not the node's to change.
func mountNode(folder string) error {
	if err := coverRun(folder); err != nil {
		return err
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("sysfs", "/sys", "sysfs", flags, "")
	if err != nil && !errors.Is(err, unix.EPERM) { // refused where a container engine masks parts of /sys
		return fmt.Errorf("mount sysfs on /sys: %w", err)
	}
	return nil
}

// coverRun hides /run behind an empty one. The folder, which may be below /run itself, is put back in its place.
func coverRun(folder string) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", folder, err)
	}
	defer unix.Close(fd)
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	if err := os.Mkdir("/run/lock", 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", fd), folder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", folder, err)
	}
	return nil
}

// signal sends a signal to the process and all of its group. One that has ended is none's concern.
func (p *process) signal(s unix.Signal) error {
	if err := unix.Kill(-p.pid, s); err != nil && err != unix.ESRCH {
		return fmt.Errorf("send %s: %w", unix.SignalName(s), err)
	}
	return nil
}

// ended says whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tellsRounds says whether the process is known to log its rounds. Everything that it has logged up to now is looked
// at.
func (p *process) tellsRounds() bool {
	if p.rounds == nil {
		return false
	}
	p.output.catchUp()
	return p.rounds.known()
}

// stop ends the process: SIGTERM, and SIGKILL for one that does not go within the grace, which is an error.
func (p *process) stop(ctx context.Context) error {
	if p.ended() {
		return nil
	}
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	late := time.NewTimer(machine.Limit(grace))
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	asked := time.Since(p.began)
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.done:
		return fmt.Errorf("it does not end on SIGTERM: killed %s after its start", asked.Round(time.Second))
	case <-time.After(machine.Limit(grace)):
		return fmt.Errorf("process %d does not even end on SIGKILL: the kernel holds it", p.pid)
	}
}

// ending puts the end of a process into words.
func ending(s *os.ProcessState) string {
	status, ok := s.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return "was ended by " + unix.SignalName(status.Signal())
	case s.ExitCode() == 0:
		return "ended by itself (exit code 0)"
	default:
		return fmt.Sprintf("ended with exit code %d", s.ExitCode())
	}
}
