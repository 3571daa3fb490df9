// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"sync"

	"golang.org/x/sys/unix"
)

// growDescriptorTable makes the process's table of descriptors large before a lab needs it. Otherwise the kernel
// doubles the table step by step, and in a process with threads each step waits for an RCU grace period (4 to 11 ms).
var growDescriptorTable = sync.OnceFunc(func() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	const wanted = 4096 // enough for a lab of a thousand pods
	high, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, int(min(limit.Cur, wanted))-1)
	if err == nil {
		unix.Close(high)
	}
})
