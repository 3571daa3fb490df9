// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Command is a program and how it starts.
type Command struct {
	Args []string // the program, a path or a name that PATH leads to, and its arguments
	Env  []string // the whole environment, as "NAME=value"
	Dir  string   // the working directory, made if it does not exist; "" means "/"
	// User and Group are numeric ids; Groups are supplementary ones. In a lab without root only 0 exists.
	User, Group uint32
	Groups      []uint32
	// NetAdmin lets the program change the pod's network: devices, routes, rules and, if it is root, settings below
	// /proc/sys/net.
	NetAdmin bool
	// BPF lets a program of root load programs into the kernel and attach them to the pod's network.
	BPF bool
	// KeepFileLimit makes setrlimit(RLIMIT_NOFILE) succeed without effect.
	KeepFileLimit bool
	// Init starts the program below a small process 1, which passes signals to the program's process group, reaps
	// orphans and ends with the program. A program that is process 1 itself ignores signals that it does not handle.
	Init bool
	// Limits are those of all processes of the container; they have no effect on Exec.
	Limits Limits
}

// Files are a container's files.
type Files struct {
	// Root is the folder with the files of the image; "" means those of this machine.
	Root string
	// Mounts are put over the root, in this order.
	Mounts []Mount
	// Space limits what the container writes to its root, in bytes; 0 means 1 GiB.
	Space int64
	// ReadOnly makes the root read-only, except /dev, /proc, /tmp and /run.
	ReadOnly bool
	// Whole shows the machine's temporary folders and file systems in memory too, except /run. What the container
	// writes there does not reach them. It has no effect with a Root.
	Whole bool
}

// Mount puts a file or folder of the machine into a container. What the container writes there reaches it, unless the
// mount is read-only.
type Mount struct {
	Source   string
	Target   string // an absolute path in the container; missing folders are made
	ReadOnly bool
}

// Container is a running or ended container.
type Container struct {
	*Process // process 1 of the container

	pod      *Pod
	mnt, pid *os.File      // its namespaces
	watched  chan struct{} // closed when it has ended and excess is written
	excess   string        // the limit that it was killed for
}

// Start starts a container. When it returns, the program runs: the mounts are made and the files of the image are gone.
func (p *Pod) Start(c Command, files Files, io IO) (*Container, error) {
	if files.Space == 0 {
		files.Space = 1 << 30
	}
	s := stage{Command: c, Files: &files, TTY: io.TTY}
	out := &Container{pod: p, watched: make(chan struct{})}
	launched, err := launch(s, io, unix.CLONE_NEWNS|unix.CLONE_NEWPID, p.enter, func(pid int) (err error) {
		if out.mnt, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
			return err
		}
		out.pid, err = os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, out.release())
	}
	out.Process = launched
	go out.watch(c.Limits, files.Mounts)
	return out, nil
}

// Exec starts another program in a running container. It has the container's namespaces and root.
func (c *Container) Exec(command Command, io IO) (*Process, error) {
	select {
	case <-c.Done():
		return nil, errors.New("the container has ended")
	default:
	}
	enter := func() error {
		if err := c.pod.enter(); err != nil {
			return err
		}
		if err := unix.Setns(int(c.pid.Fd()), unix.CLONE_NEWPID); err != nil {
			return fmt.Errorf("enter the pid namespace of the container: %w", err)
		}
		return nil
	}
	return launch(stage{Command: command, TTY: io.TTY}, io, 0, enter, nil, c.mnt)
}

// Written returns how many bytes the container has written to its root.
func (c *Container) Written() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(fmt.Sprintf("/proc/%d/root", c.cmd.Process.Pid), &st); err != nil {
		return 0, fmt.Errorf("read the use of the container's root: %w", err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

// Close ends the container, if it still runs, waits for its end and releases what it holds.
func (c *Container) Close() error {
	err := c.Signal(unix.SIGKILL)
	<-c.watched
	return errors.Join(err, c.release())
}

func (c *Container) release() error {
	var errs []error
	for _, f := range []*os.File{c.mnt, c.pid} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
