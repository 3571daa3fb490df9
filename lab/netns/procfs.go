// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"sync"

	"golang.org/x/sys/unix"
)

// procfs is an instance of the proc file system. An instance has a cache of folders of its own, in which the kernel
// searches for a folder such as sys/net/ipv4 among those of all namespaces that were opened there (proc_sys_compare of
// fs/proc/proc_sysctl.c): among those of 1,500 namespaces for 0.1 ms each time, and several times for a new one.
type procfs struct {
	root  int // descriptor; -1 means the instance that is mounted at /proc
	users int // that have not released it
	takes int
}

// takesOfProcfs is how often an instance is taken before it is replaced by a new one, which costs 0.1 ms.
const takesOfProcfs = 64

// instances hands out instances of procfs.
type instances struct {
	mu      sync.Mutex
	current *procfs
}

var procfsInstances instances

// take returns an instance that was not taken often. The caller releases it.
func (i *instances) take() *procfs {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.current; p == nil || p.takes == takesOfProcfs {
		i.current = &procfs{root: mountProcfs()}
		if p != nil && p.users == 0 {
			p.close()
		}
	}
	i.current.users++
	i.current.takes++
	return i.current
}

func (i *instances) release(p *procfs) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.users--; p.users == 0 && p != i.current {
		p.close()
	}
}

// mountProcfs returns a new instance of procfs, which no path leads to. It returns -1 if it cannot make one, as before
// Linux 5.2 (fsopen) and in containers that may not mount it. Before Linux 5.8 it returns the only instance of the PID
// namespace, in which the searches are as long as in /proc.
func mountProcfs() int {
	context, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1
	}
	defer unix.Close(context)
	if unix.FsconfigCreate(context) != nil {
		return -1
	}
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	root, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1
	}
	return root
}

// openFolder opens a folder, given by its path in the instance.
func (p *procfs) openFolder(path string) (int, error) {
	if p.root < 0 {
		path = "/proc/" + path
	}
	return unix.Openat(p.root, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func (p *procfs) close() {
	if p.root >= 0 {
		_ = unix.Close(p.root) // nothing was written to it
	}
}
