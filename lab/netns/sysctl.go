// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl returns the value of a sysctl. A key is separated by dots, "net.ipv4.ip_forward", or by slashes if a name has
// a dot, "net/ipv4/conf/eth0.5/forwarding".
func (n *NS) Sysctl(key string) (string, error) {
	value, err := openIn(n, func() ([]byte, error) { return os.ReadFile(sysctlPath(key)) })
	return strings.TrimSpace(string(value)), err
}

// SetSysctls writes sysctls in order. A missing key wraps fs.ErrNotExist, unless the setting is optional.
func (n *NS) SetSysctls(settings ...Setting) error {
	if err := n.Do(func() error { return write(settings) }); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// DifferingSettings returns the settings whose sysctls do not have the wanted values. It omits optional ones that the
// kernel lacks.
func (n *NS) DifferingSettings(settings []Setting) ([]Setting, error) {
	var out []Setting
	err := n.Do(func() error {
		for _, s := range settings {
			value, err := os.ReadFile(sysctlPath(s.Key))
			met := err == nil && strings.TrimSpace(string(value)) == s.Value
			if met || s.Optional && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// Setting is a sysctl and its wanted value.
type Setting struct {
	Key, Value string
	// Optional settings are skipped if the kernel lacks the key, or has it only in the first namespace.
	Optional bool
}

// write sets sysctls in the namespace that the thread is in.
func write(settings []Setting) error {
	if len(settings) == 0 {
		return nil
	}
	proc := procfsInstances.take()
	defer procfsInstances.release(proc)
	opened := folders{proc: proc, fds: map[string]int{}}
	defer opened.close()
	for _, s := range settings {
		err := opened.write(sysctlName(s.Key), s.Value)
		if s.Optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set %s=%s: %w", s.Key, s.Value, err)
		}
	}
	return nil
}

// folders are the descriptors of folders such as sys/net/ipv4 in an instance of procfs. Each is opened once, as the
// kernel searches for it among those of all namespaces.
type folders struct {
	proc *procfs
	fds  map[string]int
}

// write is os.WriteFile without registering the descriptor with the run-time poller.
func (f folders) write(sysctl, value string) error {
	folder, name := splitSysctl(sysctl)
	in, ok := f.fds[folder]
	if !ok {
		var err error
		if in, err = f.proc.openFolder("sys/" + folder); err != nil {
			return err
		}
		f.fds[folder] = in
	}
	fd, err := unix.Openat(in, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, unix.Close(fd))
}

func (f folders) close() {
	for _, fd := range f.fds {
		_ = unix.Close(fd) // nothing was written to it
	}
}

// sysctlName returns the name of the sysctl's file in /proc/sys.
func sysctlName(key string) string {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	return key
}

func sysctlPath(key string) string { return "/proc/sys/" + sysctlName(key) }

// splitSysctl splits a name behind the first two folders, net/ipv4, or behind those that it has.
func splitSysctl(name string) (folder, rest string) {
	parts := strings.SplitN(name, "/", 3)
	last := len(parts) - 1
	return strings.Join(parts[:last], "/"), parts[last]
}
