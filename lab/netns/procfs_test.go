// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Sysctls are written in an instance of procfs that is replaced before the kernel's searches in it become long, and
// closed when its last user has released it.
func TestProcfsInstances(t *testing.T) {
	var all instances
	first := all.take()
	if first.root < 0 {
		t.Fatal("procfs cannot be mounted, although the sandbox mounts one")
	}
	for range takesOfProcfs - 2 {
		if p := all.take(); p != first {
			t.Fatal("an instance is replaced too early")
		}
	}
	last := all.take()
	second := all.take()
	if last != first || second == first {
		t.Errorf("of %d takes, the last returns another instance: %t; the next returns a new one: %t",
			takesOfProcfs, last != first, second != first)
	}
	closed := func(p *procfs) bool {
		_, err := unix.FcntlInt(uintptr(p.root), unix.F_GETFD, 0)
		return errors.Is(err, unix.EBADF)
	}
	for range takesOfProcfs - 1 {
		all.release(first)
	}
	if closed(first) {
		t.Error("an instance that has a user is closed")
	}
	all.release(first)
	if !closed(first) {
		t.Error("a replaced instance without users is not closed")
	}
	all.release(second)
	for range takesOfProcfs - 1 {
		all.release(all.take())
	}
	if closed(second) {
		t.Error("the newest instance is closed when it has no users")
	}
	third := all.take()
	if !closed(second) {
		t.Error("an instance without users is not closed when it is replaced")
	}
	third.close()
}

// Where no procfs can be mounted, sysctls are written below /proc.
func TestProcfsAtProc(t *testing.T) {
	mounted, err := (&procfs{root: -1}).openFolder("sys/net/ipv4")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mounted)
	var got, want unix.Stat_t
	if err := errors.Join(unix.Fstat(mounted, &got), unix.Stat("/proc/sys/net/ipv4", &want)); err != nil {
		t.Fatal(err)
	}
	if got.Dev != want.Dev || got.Ino != want.Ino {
		t.Error("the folder is not the one below /proc")
	}
}
