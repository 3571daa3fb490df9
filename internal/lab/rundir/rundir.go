// SPDX-License-Identifier: Apache-2.0

// Package rundir covers the machine's /run.
package rundir

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is the folder that is covered.
const Dir = "/run"

// Cover mounts an empty file system over /run in the mount namespace of the calling thread. The working directory and
// the given folders stay visible at their places, if they lie below /run: programs there can still be started by their
// paths.
func Cover(folders ...string) error {
	if here, err := unix.Getwd(); err == nil { // there may be none
		folders = append(folders, here)
	}
	var keep []*os.File
	for _, folder := range folders {
		if !strings.HasPrefix(folder, Dir+"/") {
			continue
		}
		f, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
		if os.IsNotExist(err) {
			continue // a working directory that was removed
		}
		if err != nil {
			return err
		}
		defer f.Close()
		keep = append(keep, f)
	}
	if err := unix.Mount("tmpfs", Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	for _, f := range keep {
		if err := show(f); err != nil {
			return err
		}
	}
	return nil
}

// show mounts a covered folder at its place again, unless it is there already, below another one.
func show(f *os.File) error {
	if _, err := os.Stat(f.Name()); err == nil {
		return nil
	}
	if err := os.MkdirAll(f.Name(), 0o755); err != nil {
		return err
	}
	// A user namespace may not bind a folder without the mounts below it.
	source := fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd())
	if err := unix.Mount(source, f.Name(), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", f.Name(), err)
	}
	return nil
}
