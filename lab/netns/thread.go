// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ownNamespace is the calling thread's own namespace; /proc/self names the main thread's.
const ownNamespace = "/proc/thread-self/ns/net"

// home is the namespace of the process, opened once. Every thread is in it unless away has moved it.
var home = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// onThread runs f locked to a thread other than the main one, which /proc/self shows. It ends unless f unlocks it.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		onThread(func() { // the main thread stays occupied meanwhile
			defer close(done)
			f()
		})
		<-done
	}()
}

// occupied are the threads that away may not move: those that are moved already, and the main one, which /proc/self
// shows.
var occupied sync.Map

func init() { occupied.Store(unix.Getpid(), true) }

// away runs f on a thread that f may move to another network namespace, and moves it back. It is the caller's thread
// unless that is occupied. A thread that cannot be moved back ends with its goroutine.
func away(f func() error) (err error) {
	back, err := home()
	if err != nil {
		return fmt.Errorf("open the namespace of the process: %w", err)
	}
	runtime.LockOSThread()
	thread := unix.Gettid()
	if _, taken := occupied.LoadOrStore(thread, true); taken {
		defer runtime.UnlockOSThread() // until then no goroutine gets the thread
		done := make(chan error, 1)
		go func() { done <- away(f) }()
		return <-done
	}
	defer func() {
		if home := unix.Setns(back, unix.CLONE_NEWNET); home != nil {
			err = errors.Join(err, fmt.Errorf("return to the namespace of the process: %w", home))
			return
		}
		occupied.Delete(thread)
		runtime.UnlockOSThread()
	}()
	return f()
}

// DoInMany runs f on one thread. f opens sockets in several namespaces by moving the thread between them with enter.
func DoInMany(f func(enter func(*NS) error) error) error {
	return away(func() error {
		return f(func(n *NS) error {
			if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("%s: enter network namespace: %w", n.name, err)
			}
			return nil
		})
	})
}

// WithMounts runs mount and then f on a thread that is in the namespace and in a new mount namespace. A child that f
// starts inherits both. The mounts end with the thread and its children.
func (n *NS) WithMounts(mount, f func() error) error {
	return OnOwnThread(func() error { return n.withMounts(mount, f) })
}

// OnOwnThread runs f on a thread that ends afterwards, so f may move it to any namespaces. A child that f starts is in
// them too.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	onThread(func() { // the thread is not unlocked, so it ends
		thread := unix.Gettid()
		occupied.Store(thread, true)
		defer occupied.Delete(thread)
		done <- f()
	})
	return <-done
}

func (n *NS) withMounts(mount, f func() error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("%s: enter network namespace: %w", n.name, err)
	}
	if err := mount(); err != nil {
		return err
	}
	return f()
}

// InMounts runs f on a thread in the mount namespace of a process.
func InMounts(pid int, f func() error) error {
	return OnOwnThread(func() error { return inMounts(pid, f) })
}

func inMounts(pid int, f func() error) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the mount namespace of process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot move
		return fmt.Errorf("leave the file system context of the process: %w", err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace of process %d: %w", pid, err)
	}
	return f()
}
