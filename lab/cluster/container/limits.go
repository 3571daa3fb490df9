// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound what the processes of a container use together. A container that uses more is killed. Zero means no
// limit.
type Limits struct {
	Processes int   // processes and threads
	Memory    int64 // bytes of memory, without files in memory
	Files     int64 // bytes in use of its root, and of the file system of each mount that it may write to
}

// inspection is the time from one look at what a container uses to the next. Control groups would tell without
// looking, but few users may make one, and a killed lab would leave its groups on the machine.
const inspection = 50 * time.Millisecond

// Exceeded returns which limit the container was killed for, such as "more than 100 processes and threads", or "". It
// waits for the end of the container.
func (c *Container) Exceeded() string {
	<-c.watched
	return c.excess
}

// watch kills the container once it uses more than its limits.
func (c *Container) watch(limits Limits, mounts []Mount) {
	defer close(c.watched)
	if limits == (Limits{}) {
		<-c.Done()
		return
	}
	u := usage{limits: limits, root: fmt.Sprintf("/proc/%d/root", c.Pid())}
	u.folders = []string{u.root}
	for _, m := range mounts {
		if !m.ReadOnly {
			u.folders = append(u.folders, m.Source)
		}
	}
	look := time.NewTicker(inspection)
	defer look.Stop()
	for {
		select {
		case <-c.Done():
			return
		case <-look.C:
		}
		if c.excess = u.excess(); c.excess != "" {
			_ = c.Signal(unix.SIGKILL) // fails if it has ended
			<-c.Done()
			return
		}
	}
}

// limitProcesses makes fork fail in the container's pid namespace above the limit, since a fork bomb takes the
// processor time that the watch needs. Before Linux 6.14 the setting is that of the machine, and the watch has to do.
func (l Limits) limitProcesses() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("read the version of the kernel: %w", err)
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	if l.Processes == 0 || err != nil || major < 6 || major == 6 && minor < 14 {
		return nil
	}
	const margin = 301 // the kernel's minimum, and above the limit, so that the watch can see the excess
	err = os.WriteFile("/proc/sys/kernel/pid_max", fmt.Appendf(nil, "%d", l.Processes+margin), 0)
	if errors.Is(err, os.ErrPermission) {
		return nil // the watch alone has to do
	}
	return err
}

// usage reads what a container uses from its own /proc, which has its processes alone.
type usage struct {
	limits  Limits
	root    string
	folders []string
}

// excess returns what of the usage is above the limits, or "".
func (u *usage) excess() string {
	limits := u.limits
	tasks, memory := u.processes()
	if limits.Processes > 0 && tasks > limits.Processes {
		return fmt.Sprintf("more than %d processes and threads", limits.Processes)
	}
	if limits.Memory > 0 && memory > limits.Memory {
		return fmt.Sprintf("more than %s of memory", mebibytes(limits.Memory))
	}
	for _, folder := range u.folders {
		var st unix.Statfs_t
		if limits.Files > 0 && unix.Statfs(folder, &st) == nil && int64(st.Blocks-st.Bfree)*st.Bsize >= limits.Files {
			return "all of the " + mebibytes(limits.Files) + " for its files"
		}
	}
	return ""
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// processes returns the number of threads of all processes, and their memory. Memory that processes share counts once
// if the sum would be above the limit otherwise.
func (u *usage) processes() (tasks int, memory int64) {
	pids := u.pids()
	if u.limits.Processes > 0 && len(pids) > u.limits.Processes {
		return len(pids), 0
	}
	for _, pid := range pids {
		threads, resident := u.stat(pid)
		tasks, memory = tasks+threads, memory+resident
	}
	if memory <= u.limits.Memory {
		return tasks, memory
	}
	memory = 0
	for _, pid := range pids {
		memory += u.proportional(pid)
	}
	return tasks, memory
}

// pids returns the processes of the container without process 1, which is not the program's where it has an init.
func (u *usage) pids() (out []string) {
	proc, err := os.Open(filepath.Join(u.root, "proc"))
	if err != nil {
		return nil // it has ended
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if name[0] >= '1' && name[0] <= '9' && name != "1" {
			out = append(out, name)
		}
	}
	return out
}

// stat returns the number of threads of a process and its resident memory (proc_pid_stat(5)).
func (u *usage) stat(pid string) (threads int, resident int64) {
	text, err := os.ReadFile(filepath.Join(u.root, "proc", pid, "stat"))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the third field is the first here
	if len(fields) < 22 {
		return 0, 0
	}
	threads, _ = strconv.Atoi(fields[17])
	pages, _ := strconv.ParseInt(fields[21], 10, 64)
	return threads, pages * int64(os.Getpagesize())
}

// proportional returns the memory of a process, where that of several counts in part.
func (u *usage) proportional(pid string) int64 {
	text, _ := os.ReadFile(filepath.Join(u.root, "proc", pid, "smaps_rollup")) // it may have ended
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
