// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// devices are what programs expect of /dev.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// systemMounts returns /proc of this pid namespace, /sys of this network namespace, and /dev with /dev/pts and
// /dev/shm. They are made before the root changes: an ordinary user may mount /proc only where one is visible.
func systemMounts() ([]attachment, error) {
	const quiet = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	var out []attachment
	for _, m := range []struct {
		target, kind string
		flags        int
		options      [][2]string
	}{
		{"/proc", "proc", quiet, nil},
		{"/sys", "sysfs", quiet | unix.MOUNT_ATTR_RDONLY, nil},
		{"/dev", "tmpfs", unix.MOUNT_ATTR_NOSUID, [][2]string{{"mode", "0755"}, {"size", "64k"}}},
		{"/dev/pts", "devpts", unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC,
			[][2]string{{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}}},
		{"/dev/shm", "tmpfs", quiet, [][2]string{{"mode", "1777"}, {"size", "64m"}}},
	} {
		fd, err := newMount(m.kind, m.flags, m.options...)
		if m.kind == "sysfs" && errors.Is(err, unix.EPERM) {
			continue // refused if a container engine masks parts of /sys
		}
		if err != nil {
			return nil, err
		}
		if m.target == "/dev" {
			if err := fillDev(fd); err != nil {
				return nil, err
			}
		}
		out = append(out, attachment{fd: fd, target: m.target, folder: true})
	}
	return out, nil
}

// fillDev makes the devices that this user may make, and the usual links.
func fillDev(dir int) error {
	for _, d := range devices {
		err := unix.Mknodat(dir, d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor)))
		if errors.Is(err, unix.EPERM) {
			break // openDevices has them
		}
		if err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
		if err := unix.Fchmodat(dir, d.name, 0o666, 0); err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
	}
	for name, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "core": "/proc/kcore",
	} {
		if err := unix.Symlinkat(to, dir, name); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	return nil
}

// openDevices returns mounts of the machine's devices for a user who may not make devices. Then they are not the
// user's either, and so nothing can change them.
func openDevices() ([]attachment, error) {
	if mayMakeDevices() {
		return nil, nil
	}
	var out []attachment
	for _, d := range devices {
		path := "/dev/" + d.name
		a, err := clone(path, path)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// mayMakeDevices reports whether the process is root of the machine, and not of a user namespace.
func mayMakeDevices() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inside, outside, count uint64
	_, err = fmt.Sscan(string(text), &inside, &outside, &count)
	return err == nil && inside == 0 && outside == 0 && count == 1<<32-1
}

// hidden and fixed are the files below /proc that concern the whole machine. The lists are those of containerd.
var (
	hidden = []string{"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/proc/acpi", "/proc/asound", "/proc/scsi"}
	fixed = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// protectProc keeps root in the container from changing settings of the machine. Those of the pod's network may be
// changed by a container that may change its network.
func protectProc(netAdmin bool) error {
	const network = "/proc/sys/net"
	var settings attachment
	if netAdmin {
		var err error
		if settings, err = clone(network, network); err != nil {
			return err
		}
	}
	for _, path := range fixed {
		a, err := clone(path, path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = a.attach()
		}
		if err == nil {
			err = readOnly(path)
		}
		if err != nil {
			return fmt.Errorf("protect %s: %w", path, err)
		}
	}
	for _, path := range hidden {
		if err := hide(path); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	if netAdmin {
		return settings.attach()
	}
	return nil
}

// hide covers a file with /dev/null and a folder with an empty one.
func hide(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "size=0")
	}
	a, err := clone("/dev/null", path)
	if err != nil {
		return err
	}
	return a.attach()
}
