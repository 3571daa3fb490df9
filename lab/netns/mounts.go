// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// WithMounts runs f on a thread that is in the namespace and has a mount namespace of its own, after mount has changed
// it. A child process that f starts inherits both. The mounts go when the thread, which ends afterwards, and its
// children are gone.
func (n *NS) WithMounts(mount, f func() error) error {
	done := make(chan error, 1)
	onThread(func() { done <- n.withMounts(mount, f) }) // the thread is not unlocked, so it ends
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
