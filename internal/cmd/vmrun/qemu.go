// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const qemu = "qemu-system-x86_64"

// mark is a word on the guest's kernel command line, by which tests know that they may change what a sandbox shares
// with its machine, such as the clock. The kernel ignores a word with a dot.
const mark = "viplab.vm=1"

// bootLimit is how long a guest may take from the start of QEMU to the start of the command: under software emulation
// that is about 3 s on an idle machine, so this much means that it hangs.
const bootLimit = 2 * time.Minute

// kvmLimit is the same for the trial of KVM, with which a boot takes a second. Where KVM is itself emulated (nested
// virtualisation without the processor's help) a stock kernel may hang as soon as it is unpacked.
const kvmLimit = 15 * time.Second

type machine struct {
	kernel kernel
	accel  string // "kvm" or "tcg"
	why    string // why not kvm, if so
	job    job
	trial  bool // only whether it boots matters: a shorter limit, and no output
}

// runMachine boots, runs the job and returns its exit code.
func runMachine(m machine) (int, error) {
	dir, err := os.MkdirTemp("", "viplab-vm-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := writeInitramfs(filepath.Join(dir, "initramfs"), m.kernel); err != nil {
		return 0, fmt.Errorf("initramfs: %w", err)
	}

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)

	if m.job.Interactive {
		defer keepTerminal()()
	}
	start := time.Now()
	cmd, port, err := m.start(dir)
	if err != nil {
		return 0, err
	}
	v := &virtual{machine: m, cmd: cmd, wire: &wire{rw: port}, console: filepath.Join(dir, "console"), start: start}
	code, err := v.follow(signals)
	port.Close()
	cmd.Process.Kill() // the job's output is complete, and the guest has nothing to save
	_ = cmd.Wait()     // it was killed
	return code, err
}

// start starts QEMU and returns the host's end of the port.
func (m machine) start(dir string) (*exec.Cmd, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "port"), os.NewFile(uintptr(pair[1]), "port")
	defer theirs.Close()

	cmd := exec.Command(qemu, m.arguments(dir)...)
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	if !m.trial {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if m.job.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	} else {
		cmd.SysProcAttr.Setpgid = true // the terminal's Ctrl-C is for the command in the guest, not for QEMU
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	return cmd, ours, nil
}

func (m machine) arguments(dir string) []string {
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
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-accel", accel, "-cpu", cpu, "-smp", "2", "-m", "3072",
		"-kernel", m.kernel.image(), "-initrd", filepath.Join(dir, "initramfs"),
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

type virtual struct {
	machine
	cmd     *exec.Cmd
	wire    *wire
	console string // the file that the guest's kernel writes to
	start   time.Time
}

type frame struct {
	kind    kind
	payload []byte
}

// follow gives the guest its job and returns when it is done, the guest is lost, or a person ends it.
func (v *virtual) follow(signals <-chan os.Signal) (int, error) {
	payload, err := json.Marshal(v.job)
	if err == nil {
		err = v.wire.send(kindJob, payload)
	}
	if err != nil {
		return 0, v.lost(err)
	}
	frames, lost := make(chan frame), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go v.receive(ctx, frames, lost)

	limit := bootLimit
	if v.trial {
		limit = kvmLimit
	}
	boot, booted, interrupts := time.NewTimer(limit), false, 0
	for {
		select {
		case f := <-frames:
			switch f.kind {
			case kindBooted:
				boot.Stop()
				booted = true
				v.announce()
			case kindStdout:
				_, _ = os.Stdout.Write(f.payload) // a reader that went away does not end the command
			case kindStderr:
				_, _ = os.Stderr.Write(f.payload)
			case kindExit:
				return int(binary.BigEndian.Uint32(f.payload)), nil
			case kindFault:
				return 0, fmt.Errorf("guest: %s", f.payload)
			}
		case err := <-lost:
			return 0, v.lost(err)
		case <-boot.C:
			return 0, v.lost(fmt.Errorf("no sign of life after %v", limit))
		case s := <-signals:
			number := s.(syscall.Signal)
			if number == unix.SIGINT {
				interrupts++
			}
			if !booted || interrupts > 1 {
				return 128 + int(number), nil
			}
			if err := v.wire.send(kindSignal, []byte{byte(number)}); err != nil {
				return 0, v.lost(err)
			}
		}
	}
}

func (v *virtual) receive(ctx context.Context, frames chan<- frame, lost chan<- error) {
	for {
		k, payload, err := v.wire.receive()
		if err != nil {
			lost <- fmt.Errorf("the machine ended: %w", err)
			return
		}
		select {
		case frames <- frame{k, payload}:
		case <-ctx.Done():
			return
		}
	}
}

// announce says what runs, in one line, once the guest is up.
func (v *virtual) announce() {
	if v.trial {
		return
	}
	accel := "under KVM"
	if v.accel == "tcg" {
		accel = "under TCG (software emulation: " + v.why + ")"
	}
	progress("Linux %s booted in %.1f s %s", v.kernel.release, time.Since(v.start).Seconds(), accel)
}

// lost adds what the guest's kernel said last.
func (v *virtual) lost(err error) error {
	console, _ := os.ReadFile(v.console)
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(console), "\r", "")), "\n")
	last := lines[max(0, len(lines)-25):]
	return fmt.Errorf("Linux %s under %s: %w; its console ends with:\n  %s",
		v.kernel.release, strings.ToUpper(v.accel), err, strings.Join(last, "\n  "))
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

// keepTerminal returns what undoes the changes that QEMU, which is killed in the end, makes to the terminal's modes.
func keepTerminal() func() {
	modes, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(0, unix.TCSETS, modes) }
}
