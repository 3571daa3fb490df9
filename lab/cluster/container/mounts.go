// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// scratch is where the calling thread's mounts come together. What lies there on the machine is not in the container.
const scratch = "/run"

// emptyPlace is a folder of a container that is empty at first.
type emptyPlace struct {
	path string
	mode os.FileMode
}

// The first of them is empty also in a container that shows the whole machine.
var emptied = []emptyPlace{
	{"/run", 0o755}, {"/tmp", os.ModeSticky | 0o777}, {"/var/tmp", os.ModeSticky | 0o777},
}

// emptied returns those of the folders that these files do not show.
func (f *Files) emptied() []emptyPlace {
	if f.Whole && f.Root == "" {
		return emptied[:1]
	}
	return emptied
}

// attachment is a mount that is not in the file tree yet.
type attachment struct {
	fd     int
	target string
	folder bool
}

// mount gives the calling thread the files of a container, in a mount namespace of its own.
func (f *Files) mount(netAdmin bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	layers, others, err := f.collect()
	if err != nil {
		return err
	}
	if err := changeRoot(); err != nil {
		return err
	}
	for _, a := range slices.Concat(layers[1:], others) {
		if err := a.attach(); err != nil {
			return err
		}
	}
	for _, a := range layers {
		if f.ReadOnly {
			if err := readOnly(a.target); err != nil {
				return err
			}
		}
	}
	return protectProc(netAdmin)
}

// collect makes the root, and returns its layers and what is to be mounted over them, in this order.
func (f *Files) collect() (layers, others []attachment, err error) {
	own, err := f.sources() // these may lie below scratch, which the upper layers cover
	if err != nil {
		return nil, nil, err
	}
	devices, err := openDevices()
	if err != nil {
		return nil, nil, err
	}
	t, err := f.tree()
	if err != nil {
		return nil, nil, err
	}
	limit := fmt.Sprintf("mode=0755,size=%d", f.Space)
	if err := unix.Mount("tmpfs", scratch, "tmpfs", unix.MS_NODEV, limit); err != nil {
		return nil, nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	if layers, err = overlays(t); err != nil {
		return nil, nil, err
	}
	for _, e := range f.emptied() {
		a, err := emptyFolder(e.path, e.mode)
		if err != nil {
			return nil, nil, err
		}
		others = append(others, a)
	}
	system, err := systemMounts()
	return layers, slices.Concat(others, system, devices, own), err
}

// tree returns what the container sees below its own layers.
func (f *Files) tree() (*tree, error) {
	if f.Root == "" {
		return machineTree(f.Whole)
	}
	l, err := openLower(f.Root, "/")
	return &tree{lowers: []lower{l}}, err
}

// sources clones the mounts' sources.
func (f *Files) sources() ([]attachment, error) {
	var out []attachment
	for _, m := range f.Mounts {
		a, err := clone(m.Source, m.Target)
		if err != nil {
			return nil, err
		}
		if m.ReadOnly {
			attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
			if err := unix.MountSetattr(a.fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
				return nil, fmt.Errorf("make the mount of %s read-only: %w", m.Source, err)
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// clone returns a mount of a file or folder.
func clone(source, target string) (attachment, error) {
	info, err := os.Stat(source)
	if err != nil {
		return attachment{}, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return attachment{}, fmt.Errorf("mount %s: %w", source, err)
	}
	return attachment{fd: fd, target: target, folder: info.IsDir()}, nil
}

// emptyFolder returns a mount of an empty folder below scratch.
func emptyFolder(path string, mode os.FileMode) (attachment, error) {
	source := filepath.Join(scratch, "empty", path)
	if err := os.MkdirAll(source, 0o755); err != nil {
		return attachment{}, err
	}
	if err := os.Chmod(source, mode); err != nil {
		return attachment{}, err
	}
	if path == "/run" {
		if err := os.Mkdir(filepath.Join(source, "lock"), 0o755); err != nil {
			return attachment{}, err
		}
	}
	return clone(source, path)
}

// newMount returns a mount of a file system.
func newMount(kind string, flags int, options ...[2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if o[1] == "" {
			err = unix.FsconfigSetFlag(fs, o[0])
		} else {
			err = unix.FsconfigSetString(fs, o[0], o[1])
		}
		if err != nil {
			return -1, fmt.Errorf("mount %s: option %s=%s: %w", kind, o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, flags)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	return fd, nil
}

// attach puts the mount into the file tree. It makes what is missing of its place.
func (a attachment) attach() error {
	defer unix.Close(a.fd)
	if err := a.place(); err != nil {
		return fmt.Errorf("mount on %s: %w", a.target, err)
	}
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_SYMLINKS
	if err := unix.MoveMount(a.fd, "", unix.AT_FDCWD, a.target, flags); err != nil {
		return fmt.Errorf("mount on %s: %w", a.target, err)
	}
	return nil
}

// place makes a file or folder at the target, unless there is one.
func (a attachment) place() error {
	if a.folder {
		return os.MkdirAll(a.target, 0o755)
	}
	if _, err := os.Stat(a.target); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.target), 0o755); err != nil {
		return err
	}
	if to, err := os.Readlink(a.target); err == nil { // leads nowhere, as /etc/resolv.conf does without /run/systemd
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(a.target), to)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(a.target, nil, 0o644)
}

// changeRoot makes the root below scratch that of the calling process, and leaves the old one.
func changeRoot() error {
	if err := unix.Chdir(rootPlace); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// readOnly makes a mount read-only. It ignores a path that does not exist.
func readOnly(path string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}
