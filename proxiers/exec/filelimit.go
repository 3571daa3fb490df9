// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The fields of struct seccomp_data (linux/seccomp.h), by their offset. Arguments are 64 bits wide, the lower half
// first on the little-endian machines that this runs on.
const (
	seccompNumber = 0
	seccompFirst  = 16
	seccompSecond = 24
	seccompThird  = 32
)

// keepFileLimit has whatever the calling thread starts keep the limit of open files that there is: to change it
// succeeds and does nothing. A system call that fails with error 0 is one that succeeded (SECCOMP_RET_ERRNO,
// seccomp(2)). The thread itself is bound by it too, for good.
func keepFileLimit() error {
	const allow, pretend = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: seccompNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SETRLIMIT, SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_PRLIMIT64, SkipTrue: 8},
		bpf.LoadAbsolute{Off: seccompThird, Size: 4}, // the new limit: nil for who only asks
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		bpf.LoadAbsolute{Off: seccompThird + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		bpf.LoadAbsolute{Off: seccompSecond, Size: 4}, // prlimit64 has a process before the resource
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: seccompFirst, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RLIMIT_NOFILE, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
		bpf.RetConstant{Val: pretend},
	})
	if err != nil {
		return fmt.Errorf("filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	whole := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&whole)), 0, 0)
	runtime.KeepAlive(&whole)
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}
