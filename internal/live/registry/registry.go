// SPDX-License-Identifier: Apache-2.0

// Package registry keeps track of the labs of a user that stay.
//
// Each lab has a folder with its name. The processes of the lab hold a lock on the folder, which the kernel releases
// when the last of them has ended, however it ended. So a folder without a lock is what a killed lab has left, and the
// next command removes it.
package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The files in the folder of a lab.
const (
	Socket     = "control"    // Unix socket of the commands
	Kubeconfig = "kubeconfig" // of the lab's API, for clients on the machine
	Log        = "log"        // what the lab's process has printed
	Process    = "pid"        // number of the process that ends the lab when it ends
)

// Folder is the folder of a lab.
type Folder struct {
	Name string
	Path string
}

// File returns the path of a file in the folder.
func (f Folder) File(name string) string { return filepath.Join(f.Path, name) }

// name is what a lab may be called: it is part of paths.
var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckName returns an error if a lab cannot have this name.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%q cannot name a lab: want up to 32 lower case letters, digits and dashes", s)
	}
	return nil
}

// Create makes the folder of a new lab and locks it. The lab's processes inherit the lock. It is an error if a lab of
// this name runs. A folder that a killed lab has left is replaced.
func Create(name string) (Folder, *os.File, error) {
	if err := CheckName(name); err != nil {
		return Folder{}, nil, err
	}
	root, unlock, err := lockRoot()
	if err != nil {
		return Folder{}, nil, err
	}
	defer unlock()
	f := Folder{Name: name, Path: filepath.Join(root, name)}
	running, err := f.clean()
	switch {
	case err != nil:
		return Folder{}, nil, err
	case running:
		return Folder{}, nil, fmt.Errorf("a lab %q runs already: use it, end it with \"viplab down %s\", or give the "+
			"new one another name", name, name)
	}
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		return Folder{}, nil, err
	}
	lock, err := lock(f.Path, unix.LOCK_EX|unix.LOCK_NB)
	return f, lock, err
}

// List returns the labs that run, by name, and removes what killed ones have left.
func List() ([]Folder, error) {
	root, unlock, err := lockRoot()
	if err != nil {
		return nil, err
	}
	defer unlock()
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var out []Folder
	var errs []error
	for _, e := range entries {
		f := Folder{Name: e.Name(), Path: filepath.Join(root, e.Name())}
		running, err := f.clean()
		if running {
			out = append(out, f)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Find returns the lab of that name, or the only one if the name is empty.
func Find(name string) (Folder, error) {
	labs, err := List()
	if err != nil {
		return Folder{}, err
	}
	var names []string
	for _, f := range labs {
		if f.Name == name || name == "" && len(labs) == 1 {
			return f, nil
		}
		names = append(names, f.Name)
	}
	switch {
	case len(labs) == 0:
		return Folder{}, errors.New("no lab runs: start one with \"viplab up\"")
	case name == "":
		return Folder{}, fmt.Errorf("%d labs run: choose one by its name: %s", len(labs), strings.Join(names, ", "))
	}
	return Folder{}, fmt.Errorf("no lab %q runs: there is %s", name, strings.Join(names, ", "))
}

// Remove removes the folder of a lab if none of its processes is left, and the folder of all labs if it is empty.
func (f Folder) Remove() error {
	_, unlock, err := lockRoot()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = f.clean()
	return err
}

// Ended returns a channel that is closed when all processes of the lab have ended.
func (f Folder) Ended() (<-chan struct{}, error) {
	dir, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer dir.Close()
		_ = flock(dir, unix.LOCK_SH) // fails only for lack of kernel memory
	}()
	return ended, nil
}

// clean removes the folder of a lab that does not run, if it exists, and reports whether the lab runs.
func (f Folder) clean() (running bool, err error) {
	dir, err := lock(f.Path, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	defer dir.Close()
	return false, os.RemoveAll(f.Path)
}

// lockRoot makes the folder of all labs, locks it against other commands, and returns its path. unlock removes it if it
// is empty.
func lockRoot() (root string, unlock func(), err error) {
	root = rootPath()
	for {
		if err := os.MkdirAll(root, 0o700); err != nil {
			return "", nil, fmt.Errorf("make the folder of labs: %w", err)
		}
		if err := checkOwner(root); err != nil {
			return "", nil, err
		}
		dir, err := lock(root, unix.LOCK_EX)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another command has just removed it
		}
		if err != nil {
			return "", nil, err
		}
		if isAt(dir, root) {
			return root, func() { _ = os.Remove(root); dir.Close() }, nil // Remove fails if there are labs
		}
		dir.Close()
	}
}

// rootPath returns the folder of all labs of this user.
func rootPath() string {
	if os.Getuid() == 0 {
		return "/run/viplab-labs"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "viplab")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("viplab-%d", os.Getuid()))
}

// checkOwner returns an error if others could have made the folder, or may write to it.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // lockRoot makes it again
	}
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || int(owner) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder of this user alone (mode 0700): remove it", path)
	}
	return nil
}

// lock opens a folder and locks it. The lock ends when all copies of the descriptor are closed.
func lock(path string, how int) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(dir, how); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return dir, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// isAt reports whether the open folder is still what the path leads to.
func isAt(dir *os.File, path string) bool {
	opened, err := dir.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(opened, there)
}
