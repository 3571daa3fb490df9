// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rootPlace is where the root is mounted before it becomes the root.
const rootPlace = scratch + "/root"

// lower is a folder that an overlay covers.
type lower struct {
	fd   int
	path string // in the container
}

func openLower(source, path string) (lower, error) {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return lower{}, fmt.Errorf("open %s: %w", source, err)
	}
	return lower{fd: fd, path: path}, nil
}

// tree is what a container sees of the machine. An overlay shows one file system, and without root only a folder
// without mounts of others below it. So the tree has a small folder with what lies above mounts, and overlays in it.
type tree struct {
	mounts  map[string]bool // the mount points of the machine; true if there are ordinary files
	whole   bool            // temporary folders and file systems in memory are shown
	lowers  []lower
	folders []string
	links   map[string]string
	files   map[string]smallFile
}

type smallFile struct {
	data []byte
	mode os.FileMode
}

// copied is the size in bytes up to which a file beside mount points is copied; larger ones are not in the container.
const copied = 64 << 10

// machineTree returns the tree of this machine, with its temporary folders and file systems in memory if it is whole.
func machineTree(whole bool) (*tree, error) {
	mounts, err := mountPoints(whole)
	if err != nil {
		return nil, err
	}
	t := &tree{mounts: mounts, whole: whole, links: map[string]string{}, files: map[string]smallFile{}}
	return t, t.add("/")
}

// add adds what is in a folder. It leaves out what the user may not read.
func (t *tree) add(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		ordinary, mounted := t.mounts[path]
		switch {
		case t.hasOwnMount(path) || mounted && !ordinary:
		case e.Type()&os.ModeSymlink != 0:
			if to, err := os.Readlink(path); err == nil {
				t.links[path] = to
			}
		case e.IsDir() && t.mountsBelow(path):
			t.folders = append(t.folders, path)
			_ = t.add(path) // what cannot be read is an empty folder
		case e.IsDir():
			if l, err := openLower(path, path); err == nil {
				t.lowers = append(t.lowers, l)
			}
		case e.Type().IsRegular():
			if info, err := e.Info(); err == nil && info.Size() <= copied {
				if data, err := os.ReadFile(path); err == nil {
					t.files[path] = smallFile{data, info.Mode().Perm()}
				}
			}
		}
	}
	return nil
}

func (t *tree) mountsBelow(path string) bool {
	for m := range t.mounts {
		if strings.HasPrefix(m, path+"/") {
			return true
		}
	}
	return false
}

// build makes what is not in an overlay, below a folder.
func (t *tree) build(folder string) error {
	for _, path := range t.folders {
		if err := os.MkdirAll(filepath.Join(folder, path), 0o755); err != nil {
			return err
		}
	}
	for path, to := range t.links {
		if err := os.Symlink(to, filepath.Join(folder, path)); err != nil {
			return err
		}
	}
	for path, f := range t.files {
		if err := os.WriteFile(filepath.Join(folder, path), f.data, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// mountPoints returns the mount points of this machine, and whether files are there that a container shows.
func mountPoints(memory bool) (map[string]bool, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue: see proc_pid_mountinfo(5)
		mount, source, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if ok && len(fields) >= 5 {
			kind := strings.Fields(source)[0]
			out[unescape(fields[4])] = memory && inMemory(kind) || !isVirtual(kind)
		}
	}
	return out, lines.Err()
}

// isVirtual reports whether a type of file system has no files that programs consist of, or none that last.
func isVirtual(kind string) bool {
	return inMemory(kind) || strings.HasPrefix(kind, "cgroup") || slices.Contains([]string{
		"devtmpfs", "proc", "sysfs", "devpts", "mqueue", "debugfs", "tracefs", "securityfs", "bpf",
		"pstore", "efivarfs", "configfs", "fusectl", "hugetlbfs", "autofs", "binfmt_misc", "rpc_pipefs", "nsfs", "selinuxfs",
	}, kind)
}

// inMemory reports whether a type of file system has ordinary files that do not last.
func inMemory(kind string) bool { return kind == "tmpfs" || kind == "ramfs" }

// hasOwnMount reports whether the container mounts something of its own at a path or above it.
func (t *tree) hasOwnMount(path string) bool {
	own := []string{"/proc", "/sys", "/dev", "/run"}
	if !t.whole {
		own = append(own, "/tmp", "/var/tmp")
	}
	for _, own := range own {
		if path == own || strings.HasPrefix(path, own+"/") {
			return true
		}
	}
	return false
}

// unescape decodes the octal escapes of mountinfo, such as \040 for a space.
func unescape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// overlays mounts the root at rootPlace and returns it, without a descriptor, and the mounts below it.
func overlays(t *tree) ([]attachment, error) {
	skeleton := filepath.Join(scratch, "skeleton")
	if err := os.Mkdir(skeleton, 0o755); err != nil {
		return nil, err
	}
	if err := t.build(skeleton); err != nil {
		return nil, err
	}
	root, err := clone(skeleton, rootPlace) // unless an overlay is the root
	if err != nil {
		return nil, err
	}
	out := []attachment{{fd: -1, target: "/"}}
	for i, l := range t.lowers {
		fd, err := overlay(l, filepath.Join(scratch, "layers", strconv.Itoa(i)))
		unix.Close(l.fd)
		switch {
		case l.path == "/" && err != nil:
			return nil, err
		case l.path == "/":
			unix.Close(root.fd)
			root.fd = fd
		case err == nil:
			out = append(out, attachment{fd: fd, target: l.path, folder: true})
		case l.path == "/usr" || l.path == "/etc": // another that cannot be a lower layer stays an empty folder
			return nil, err
		}
	}
	return out, root.attach()
}

// overlay returns a mount of a file system with layers on top, in a folder, that take what is written.
func overlay(l lower, folder string) (int, error) {
	upper, work := filepath.Join(folder, "upper"), filepath.Join(folder, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return -1, err
	}
	if err := copyFolders(l, upper); err != nil {
		return -1, err
	}
	options := [][2]string{
		{"lowerdir", fmt.Sprintf("/proc/self/fd/%d", l.fd)}, {"upperdir", upper}, {"workdir", work},
	}
	if !mayMakeDevices() {
		options = append(options, [2]string{"userxattr", ""}) // others are for the machine's root
	}
	fd, err := newMount("overlay", unix.MOUNT_ATTR_NODEV, options...)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.path, err)
	}
	return fd, nil
}

// copyFolders makes the usual folders in the upper layer. Without root they belong to another user of the machine in
// the lower one, and so nothing could be made in them.
func copyFolders(l lower, upper string) error {
	folders := []string{"/"}
	if !mayMakeDevices() {
		folders = append(folders, below[l.path]...)
	}
	for _, name := range folders {
		var st unix.Stat_t
		err := unix.Fstatat(l.fd, "."+name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		path := filepath.Join(upper, name)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := unix.Chmod(path, st.Mode&0o7777); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// below lists the folders in which programs like to make files.
var below = map[string][]string{
	"/usr": {"/local", "/share"},
	"/var": {"/cache", "/lib", "/log", "/www"},
}
