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

// mark is a word on the guest's kernel command line, by which tests know that they may change what a sandbox shares
// with its machine, such as the clock. The kernel ignores a word with a dot.
const mark = "viplab.vm=1"

// bootLimit is how long a guest may take from its start to that of the command: under software emulation that is about
// 3 s on an idle machine, so this much means that it hangs.
const bootLimit = 2 * time.Minute

type machine struct {
	kernel kernel
	accel  string // "kvm", "tcg" or uml
	why    string // why not kvm, if tcg
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
	if err := writeInitramfs(initramfs(dir), m.kernel); err != nil {
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
	v := &virtual{machine: m, cmd: cmd, wire: &wire{rw: port}, console: console(dir), start: start}
	code, err := v.follow(signals)
	port.Close()
	cmd.Process.Kill() // the job's output is complete, and the guest has nothing to save
	_ = cmd.Wait()     // it was killed
	return code, err
}

// initramfs and console are files in the folder of a machine: what it boots from, and what its kernel prints.
func initramfs(dir string) string { return filepath.Join(dir, "initramfs") }
func console(dir string) string   { return filepath.Join(dir, "console") }

// start starts the machine and returns the host's end of the port.
func (m machine) start(dir string) (*exec.Cmd, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "port"), os.NewFile(uintptr(pair[1]), "port")
	defer theirs.Close()

	cmd, err := m.command(dir)
	if err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if m.job.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	} else {
		cmd.SysProcAttr.Setpgid = true // the terminal's Ctrl-C is for the command in the guest, not for this
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	return cmd, ours, nil
}

// command returns QEMU, which writes what the guest's kernel prints to a file, or that kernel itself with its output
// sent there.
func (m machine) command(dir string) (*exec.Cmd, error) {
	if m.accel == uml {
		out, err := os.Create(console(dir)) // stays open as long as this process, which is as long as the machine
		cmd := exec.Command(m.kernel.image(), m.umlArguments(dir)...)
		cmd.Stdout, cmd.Stderr = out, out
		return cmd, err
	}
	args := m.qemuArguments(dir)
	cmd := exec.Command(args[0], args[1:]...)
	if !m.trial {
		cmd.Stderr = os.Stderr
	}
	return cmd, nil
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
	if err != nil {
		return 0, err
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
			case kindReady:
				if err := v.wire.send(kindJob, payload); err != nil {
					return 0, v.lost(err)
				}
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
	accel := map[string]string{
		"kvm": "under KVM", "tcg": "under TCG (software emulation: " + v.why + ")", uml: "as a process of this machine",
	}[v.accel]
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

// keepTerminal returns what undoes the changes that QEMU, which is killed in the end, makes to the terminal's modes.
func keepTerminal() func() {
	modes, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(0, unix.TCSETS, modes) }
}
