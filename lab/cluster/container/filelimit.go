// SPDX-License-Identifier: Apache-2.0

package container

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The offsets of the fields of struct seccomp_data (linux/seccomp.h). Arguments are 64 bits wide. The lower half comes
// first, because viplab runs on little-endian machines only.
const (
	seccompNumber = 0
	seccompFirst  = 16
	seccompSecond = 24
	seccompThird  = 32
)

// keepFileLimit makes every process that the calling thread starts keep its limit of open files: setting the limit
// succeeds and does nothing. A filter that returns SECCOMP_RET_ERRNO with error 0 makes a system call succeed
// (seccomp(2)). The filter also binds the calling thread, and cannot be removed.
func keepFileLimit() error {
	const allow, pretend = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: seccompNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SETRLIMIT, SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_PRLIMIT64, SkipTrue: 8},
		bpf.LoadAbsolute{Off: seccompThird, Size: 4}, // the new limit: nil if the caller only reads the limit
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		bpf.LoadAbsolute{Off: seccompThird + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		bpf.LoadAbsolute{Off: seccompSecond, Size: 4}, // prlimit64 takes the process before the resource
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
	return installFilter(filter)
}
