// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/cluster/container"
)

// Limits bound what a program uses on one node. A program that uses more is ended, and the scenario fails.
type Limits container.Limits

// DefaultLimits are far above what service proxies need.
var DefaultLimits = Limits{Processes: 500, Memory: 2 << 30, Files: 512 << 20}

func (l Limits) orDefault() container.Limits {
	if l.Processes == 0 {
		l.Processes = DefaultLimits.Processes
	}
	if l.Memory == 0 {
		l.Memory = DefaultLimits.Memory
	}
	if l.Files == 0 {
		l.Files = DefaultLimits.Files
	}
	return container.Limits(l)
}

// folder is the node's StateDir with a file system of its own, whose size is limited. The program may put symbolic
// links into it, so that the harness opens its files by root alone.
type folder struct {
	path string
	root *os.Root
}

// openFolder mounts a file system of a size in bytes over a folder.
func openFolder(path string, size int64) (*folder, error) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, fmt.Sprintf("mode=0755,size=%d", size)); err != nil {
		return nil, fmt.Errorf("mount a file system on %s: %w", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(path, unix.MNT_DETACH))
	}
	return &folder{path, root}, nil
}

func (f *folder) close() error {
	return errors.Join(f.root.Close(), unix.Unmount(f.path, unix.MNT_DETACH))
}
