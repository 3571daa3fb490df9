// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/rundir"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster/container"
)

// grace is the time that a command has to end after SIGTERM. Emulated machines get more.
const grace = 10 * time.Second

// lastWords is the time for which output is read after a command has ended. Children that it left behind may hold the
// pipe open.
const lastWords = 200 * time.Millisecond

// process is one process of a command, from its start to its end.
type process struct {
	began     time.Time
	container *container.Container
	done      chan struct{} // closed once the process has ended and its output is copied
	end       string        // how it ended, in words; written before done is closed, like succeeded
	exceeded  string        // the limit that it was killed for, or ""; written like end
	succeeded bool          // it exited by itself with code 0
	output    *output
	rounds    *rounds // nil if the command's rounds are not known
}

// start runs a command in a container on the network of a node. Its folder is its working directory.
func start(pod *container.Pod, argv, env []string, folder string, log io.Writer, how Command) (*process, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	c, err := pod.Start(container.Command{
		Args: argv, Env: env, Dir: folder, NetAdmin: true, BPF: true, KeepFileLimit: how.KeepFileLimit, Init: true,
		Limits: how.Limits.orDefault(),
	}, files(folder, how.Limits.orDefault().Files), container.IO{Out: w, Err: w})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p := &process{container: c, began: time.Now(), done: make(chan struct{})}
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
		status := c.Status()
		took := time.Since(p.began).Round(time.Millisecond)
		p.succeeded, p.exceeded = status == 0, c.Exceeded()
		p.end = fmt.Sprintf("%s after %s", ending(status, p.exceeded), took)
		_ = c.Close()                                    // its processes have ended with it
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

// ToolFolderVariable is the environment variable that names a folder of tools in PATH below /run. Programs share it,
// and may write there: tools that put faults into programs record there what they have changed.
const ToolFolderVariable = "VIPLAB_TOOLS"

// files are the files of a command: those of the machine, whose changes are lost, its own folder, and that of tools.
func files(folder string, space int64) container.Files {
	f := container.Files{Whole: true, Space: space, Mounts: []container.Mount{{Source: folder, Target: folder}}}
	if tools := os.Getenv(ToolFolderVariable); tools != "" {
		f.Mounts = append(f.Mounts, container.Mount{Source: tools, Target: tools})
	}
	// A working directory below /run, which is empty otherwise, may have the program.
	if here, err := os.Getwd(); err == nil && strings.HasPrefix(here, rundir.Dir+"/") {
		f.Mounts = append([]container.Mount{{Source: here, Target: here, ReadOnly: true}}, f.Mounts...)
	}
	return f
}

// signal sends a signal to the process and its process group; SIGKILL ends all processes of the command. It ignores a
// process that has already ended.
func (p *process) signal(s unix.Signal) error {
	if err := p.container.Signal(s); err != nil {
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
		return fmt.Errorf("process %d does not even end on SIGKILL: the kernel holds it", p.container.Pid())
	}
}

// ending describes the end of a process in words.
func ending(status syscall.WaitStatus, exceeded string) string {
	switch {
	case exceeded != "":
		return "used " + exceeded + ", and was ended"
	case status.Signaled():
		return "was ended by " + unix.SignalName(status.Signal())
	case status.ExitStatus() == 0:
		return "ended by itself (exit code 0)"
	default:
		return fmt.Sprintf("ended with exit code %d", status.ExitStatus())
	}
}
