// SPDX-License-Identifier: Apache-2.0

package container

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilities are those that a program of root keeps: the usual ones of a container but CAP_MKNOD, since a device
// would lead to the machine.
var capabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT,
	unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

// dropPrivileges changes the calling thread to the command's user, without the capabilities that reach beyond the
// container, for it and all programs that it starts.
func (c *Command) dropPrivileges() error {
	keep := capabilities
	if c.NetAdmin {
		keep = append(slices.Clone(keep), unix.CAP_NET_ADMIN)
	}
	if c.BPF {
		keep = append(slices.Clone(keep), unix.CAP_BPF)
	}
	last, err := lastCapability()
	if err != nil {
		return err
	}
	for n := range last + 1 {
		if !slices.Contains(keep, n) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
				return fmt.Errorf("drop capability %d: %w", n, err)
			}
		}
	}
	if c.KeepFileLimit {
		if err := keepFileLimit(); err != nil {
			return err
		}
	}
	if err := c.restrictCalls(); err != nil {
		return err
	}
	return c.becomeUser(keep)
}

func lastCapability() (int, error) {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// becomeUser changes user and groups, and then the capabilities that the thread itself still has.
func (c *Command) becomeUser(keep []int) error {
	if len(c.Groups) > 0 || c.User != 0 {
		if err := setGroups(c.Groups); err != nil {
			return fmt.Errorf("set the groups %v: %w", c.Groups, err)
		}
	}
	id := func(call, id uintptr) error {
		if _, _, errno := unix.RawSyscall(call, id, id, id); errno != 0 {
			return errno
		}
		return nil
	}
	if err := id(unix.SYS_SETRESGID, uintptr(c.Group)); err != nil {
		return fmt.Errorf("become group %d (without root a lab has only group 0): %w", c.Group, err)
	}
	if err := id(unix.SYS_SETRESUID, uintptr(c.User)); err != nil {
		return fmt.Errorf("become user %d (without root a lab has only user 0): %w", c.User, err)
	}
	var sets [2]unix.CapUserData // of the capabilities below 32 and above; a program of another user has none
	if c.User == 0 {
		for _, n := range keep {
			sets[n/32].Effective |= 1 << (n % 32)
			sets[n/32].Permitted |= 1 << (n % 32)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// setGroups is setgroups for the calling thread alone.
func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		if len(groups) == 0 && errno == unix.EPERM {
			return nil // without root there are none, and no right to change them
		}
		return errno
	}
	return nil
}

// architectures holds the kernel's names of Go's architectures.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// restrictCalls makes the kernel refuse what namespaces do not separate: the keys of users, programs of the kernel's
// virtual machine, and further user namespaces, whose root may mount a /proc of its own and change settings there.
func (c *Command) restrictCalls() error {
	refused := []uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL}
	if !c.BPF {
		refused = append(refused, unix.SYS_BPF)
	}
	return installFilter(callFilter(refused))
}

// installFilter binds a filter to the calling thread and all that it starts.
func installFilter(program []unix.SockFilter) error {
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	at := uintptr(unsafe.Pointer(&filter))
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, at, 0, 0); err != nil {
		return fmt.Errorf("restrict system calls: %w", err)
	}
	return nil
}

func callFilter(refused []uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter { // of a field of seccomp_data
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, skip uint8) unix.SockFilter { // or else skip instructions
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	deny, allow := answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)), answer(unix.SECCOMP_RET_ALLOW)
	var program []unix.SockFilter
	if native := architectures[runtime.GOARCH]; native != 0 { // other architectures number the calls otherwise
		program = append(program, load(4), equal(native, 1),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: 1}, deny)
	}
	program = append(program, load(0)) // the call
	for _, call := range refused {
		program = append(program, equal(call, 1), deny)
	}
	// A filter cannot see the arguments of clone3; without it programs use clone.
	program = append(program, equal(unix.SYS_CLONE3, 1), answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	for _, call := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		program = append(program, equal(call, 4), load(16), // the low half of the first argument
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1}, deny, allow)
	}
	return append(program, allow)
}
