// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockOut makes the folder of a report if need be and reserves it until the caller calls unlock, or the process ends.
// Without the lock, two runs would mix their files. A file system without locks has no protection.
func lockOut(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("--out: another viplab writes into %s now: wait for its end, or name another folder",
			folder)
	}
	return func() { f.Close() }, nil
}
