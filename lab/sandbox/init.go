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

	"github.com/viplab/viplab/internal/lab/rundir"
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
		_, _ = lifeline.Write(encodeError(err)) // fails if the supervisor is gone
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
	files := []uintptr{0, 1, 2}
	for i := range self.files {
		unix.CloseOnExec(lifelineFd + 1 + i)
		files = append(files, uintptr(lifelineFd+1+i))
	}
	pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{Env: environ(next), Files: files})
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

// makeWorld sets up the mounts and the loopback of the fresh namespaces.
func makeWorld() error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount proc", mountProc},
		{"make /sys read-only", protectSys},
		{"mount tmpfs on /run", mountRun},
		{"set host name", func() error { return unix.Sethostname([]byte(Hostname)) }},
		{"set loopback up", LoopbackUp},
		{"raise the limit of open files", raiseFileLimit},
	} {
		if err := step.do(); err != nil {
			return explain(step.name, err)
		}
	}
	return nil
}

func mountProc() error {
	return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// protectSys keeps root in the sandbox from writing settings that no namespace covers, such as the size of the
// machine's conntrack table, which kube-proxy sets through /sys/module/nf_conntrack if /sys is writable.
func protectSys() error {
	return unix.MountSetattr(unix.AT_FDCWD, "/sys", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// mountRun covers the machine's /run, with its sockets, locks and named namespaces, with an empty one. Of a working
// directory below /run, only that stays visible.
func mountRun() error {
	if err := rundir.Cover(); err != nil {
		return err
	}
	for _, dir := range []string{"/run/netns", "/run/lock", StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// LoopbackUp sets up the loopback device of the network namespace that the thread is in.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// raiseFileLimit makes room for a few descriptors per namespace. Children inherit a limit that package syscall sets.
func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
