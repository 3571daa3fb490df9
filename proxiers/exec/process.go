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

	"github.com/viplab/viplab/internal/lab/rundir"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/netns"
)

// grace is the time that a command has to end after SIGTERM. Emulated machines get more.
const grace = 10 * time.Second

// lastWords is the time for which output is read after a command has ended. Children that it left behind may hold the
// pipe open.
const lastWords = 200 * time.Millisecond

// process is one process of a command, from its start to its end.
type process struct {
	pid       int
	began     time.Time
	done      chan struct{} // closed once the process has ended and its output is copied
	end       string        // how it ended, in words; written before done is closed, like succeeded
	succeeded bool          // it exited by itself with code 0
	output    *output
	rounds    *rounds // nil if the command's rounds are not known
}

// start runs a command in a network namespace, with a mount namespace and a process group of its own.
func start(ns *netns.NS, cmd *osexec.Cmd, log io.Writer, how Command) (*process, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	prepare := func() error { // runs on the thread that starts the command and ends with it
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
		_ = cmd.Wait() // ProcessState says how it ended
		p.succeeded = cmd.ProcessState.Success()
		p.end = fmt.Sprintf("%s after %s", ending(cmd.ProcessState), time.Since(p.began).Round(time.Millisecond))
		_ = p.signal(unix.SIGKILL)                       // children that it left behind; mostly there are none
		_ = r.SetReadDeadline(time.Now().Add(lastWords)) // a pipe in non-blocking mode supports deadlines
		<-drained
	}()
	return p, nil
}

// pipe is like os.Pipe, but the write end, which children inherit, stays in blocking mode.
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

// mountNode gives the calling thread the mounts of a node: an empty /run, which nodes must not share because of locks
// and sockets there, and a /sys with the node's own devices. The folder stays visible. As in the sandbox, /sys is
// read-only: a node must not change what lies outside of namespaces, such as the size of the machine's conntrack table.
func mountNode(folder string) error {
	if err := rundir.Cover(folder); err != nil {
		return fmt.Errorf("cover /run: %w", err)
	}
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return err
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("sysfs", "/sys", "sysfs", flags, "")
	if err != nil && !errors.Is(err, unix.EPERM) { // refused if a container engine masks parts of /sys
		return fmt.Errorf("mount sysfs on /sys: %w", err)
	}
	return nil
}

// signal sends a signal to the process and its process group. It ignores a process that has already ended.
func (p *process) signal(s unix.Signal) error {
	if err := unix.Kill(-p.pid, s); err != nil && err != unix.ESRCH {
		return fmt.Errorf("send %s: %w", unix.SignalName(s), err)
	}
	return nil
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tellsRounds reports whether the process has logged a round. It first drains the output written up to now.
func (p *process) tellsRounds() bool {
	if p.rounds == nil {
		return false
	}
	p.output.catchUp()
	return p.rounds.known()
}

// stop ends the process with SIGTERM. If the process outlives the grace, stop sends SIGKILL and returns an error.
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

// ending describes the end of a process in words.
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
