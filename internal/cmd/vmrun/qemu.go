// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const qemu = "qemu-system-x86_64"

// kvmLimit is the same for the trial of KVM, with which a boot takes a second. Where KVM is itself emulated (nested
// virtualisation without the processor's help) a stock kernel may hang as soon as it is unpacked.
const kvmLimit = 15 * time.Second

// qemuArguments are those of QEMU, the program first.
func (m machine) qemuArguments(dir string) []string {
	// With a host thread for each of the guest's processors, a processor sometimes runs code that another one is just
	// rewriting, and Linux 6.12 panics where it switches netfilter hooks on (QEMU 7.2, NF_HOOK, int3). With one thread
	// for both it does not, and our tests take no longer.
	// Without ERMS and FSRM the kernel clears and copies memory by words: QEMU emulates "rep stosb" byte for byte, so
	// programs start sooner. The fifth level of page tables only makes page faults longer.
	accel, cpu := "tcg,thread=single", "max,erms=off,fsrm=off,la57=off"
	if m.accel == "kvm" {
		accel, cpu = "kvm", "host"
	}
	// The kernel's boot-time test of its timer counts ticks, and panics when the host gives QEMU too little time for them.
	// no_timer_check leaves that test out.
	args := []string{
		qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-accel", accel, "-cpu", cpu, "-smp", "2", "-m", "3072",
		"-kernel", m.kernel.image(), "-initrd", initramfs(dir),
		"-append", "console=ttyS0 panic=-1 quiet no_timer_check " + mark,
		"-serial", "file:" + filepath.Join(dir, "console"),
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=port,fd=3", "-device", "virtserialport,chardev=port,name=" + portName,
		"-virtfs", "local,path=/,mount_tag=host,security_model=none,multidevs=remap,readonly=on",
	}
	for i, out := range m.job.Outs {
		args = append(args, "-virtfs",
			fmt.Sprintf("local,path=%s,mount_tag=out%d,security_model=none,multidevs=remap", out, i))
	}
	if m.job.Interactive {
		args = append(args, "-chardev", "stdio,id=tty,signal=off", "-device", "virtconsole,chardev=tty")
	}
	return args
}

// accelerator decides between KVM and software emulation, and says why not KVM. A device file that can be opened proves
// nothing, so KVM is tried once with this kernel; the answer holds for this kernel on the machine's present one.
func accelerator(cache string, k kernel) (accel, why string) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg", err.Error()
	}
	f.Close()
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return "tcg", err.Error()
	}
	note := filepath.Join(cache, "kvm-"+unix.ByteSliceToString(host.Release[:])+"-"+k.release)
	answer, err := os.ReadFile(note)
	if err != nil {
		progress("try KVM (once, at most %v)", kvmLimit)
		trial := machine{kernel: k, accel: "kvm", trial: true,
			job: job{Args: []string{"/bin/true"}, Dir: "/", Modules: k.modules()}}
		answer = []byte("kvm")
		if code, err := runMachine(trial); err != nil || code != 0 {
			answer = fmt.Appendf(nil, "tcg KVM does not boot this kernel within %v", kvmLimit)
		}
		if err := os.WriteFile(note, answer, 0o644); err != nil {
			progress("%v", err)
		}
	}
	accel, why, _ = strings.Cut(string(answer), " ")
	return accel, why
}
