// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/lab/hosttest"
	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/sandbox"
)

// TestProgramsThatUseTooMuch: each ends, with what it used too much of, and the program on the other node goes on.
func TestProgramsThatUseTooMuch(t *testing.T) {
	limits := Limits{Processes: 200, Memory: 64 << 20, Files: 8 << 20}
	for name, c := range map[string]struct{ script, want string }{
		// The inner shell ends with its first fork that fails, which may be before the watch looks.
		"leavers": {"sh -c 'while :; do setsid sleep infinity & done'; exec sleep infinity",
			"used more than 200 processes and threads"},
		"memory": {"exec awk 'BEGIN { s = \"x\"; while (1) s = s s }'", "used more than 64 MiB of memory"},
		"root":   {"yes >/var/tmp/full; yes >/tmp/full; sleep infinity", "used all of the 8 MiB for its files"},
		"folder": {"yes >full; sleep infinity", "used all of the 8 MiB for its files"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			w := newWorld(t)
			good := w.start("n2", child("good")...)
			hostile := w.place("n1", Command{Name: "mine", Argv: []string{"sh", "-c", c.script}, Limits: limits})
			ctx := within(t, patience)
			wantError(t, w.apply(ctx, hostile), "n1: mine "+c.want)
			must(t, w.apply(ctx, good))
			must(t, hostile.Stop(ctx))
			must(t, good.Stop(ctx))
		})
	}
}

// A bomb whose forks fail goes out, and may do so before it is seen.
func TestAForkBombHarmsItselfAlone(t *testing.T) {
	w := newWorld(t)
	good := w.start("n2", child("good")...)
	bomb := w.place("n1", Command{
		Name: "mine", Limits: Limits{Processes: 200},
		Argv: []string{"sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep infinity"},
	})
	wantError(t, w.apply(within(t, 10*time.Second), bomb), "n1: mine")
	ctx := within(t, patience)
	must(t, w.apply(ctx, good))
	must(t, bomb.Stop(ctx))
	must(t, good.Stop(ctx))
}

// attempts are what a program may try against the machine and the harness as root. Most fail; nothing outside changes.
var attempts = []string{
	"kill -9 -1; kill -9 1; kill -STOP 1",
	"nsenter --target $PARENT --mount --net --pid touch \"$OUTSIDE/entered\"; nsenter --target 1 --net nft flush ruleset",
	"touch \"$OUTSIDE/written\" /etc/viplab-was-here; rm -rf \"$OUTSIDE\"/*; chroot /proc/1/root touch /etc/viplab-was-here",
	"ln -sf \"$OUTSIDE/victim\" refused; ln -sf \"$OUTSIDE/victim\" refuse; ln -sf \"$OUTSIDE/victim\" log",
	"sysctl -w vm.swappiness=7 kernel.core_pattern=evil kernel.pid_max=301; echo evil >/proc/sys/kernel/core_pattern",
	"mount -o remount,rw /sys; umount -a; mount -t proc proc /mnt; mount -t cgroup2 none /mnt; mount --bind / /mnt",
	"unshare --user --map-root-user --mount mount -t tmpfs none /etc; unshare --net true && echo unshared",
	"modprobe dummy; mknod disk b 254 0 && cat disk; dmesg --clear; date --set 2001-01-01; swapoff -a; hostname evil",
	"nft flush ruleset; iptables --flush; ip link delete lo; ip route flush table all; sysctl -w net.ipv4.ip_forward=0",
}

func TestNothingOfTheMachineIsTouched(t *testing.T) {
	w := newWorld(t)
	good := w.start("n2", child("good")...)
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	must(t, os.WriteFile(victim, []byte("whole"), 0o644))
	bystander := osexec.Command("sleep", "infinity")
	must(t, bystander.Start())
	t.Setenv("OUTSIDE", outside)
	t.Setenv("PARENT", ownPid(t))
	before, settings := hostState(t)
	ctx := within(t, patience)
	hostile := w.start("n1", "sh", "-c", strings.Join(attempts, "\n")+"\nexit 8")
	wantError(t, w.apply(ctx, hostile), "n1: mine ended with exit code 8")
	must(t, hostile.Stop(ctx))
	after, now := hostState(t)
	if diff := before.Diff(after); len(diff) > 0 || settings != now {
		t.Errorf("the machine was changed: %v\nbefore %s\nnow    %s", diff, settings, now)
	}
	entries, err := os.ReadDir(outside)
	must(t, err)
	if text, err := os.ReadFile(victim); string(text) != "whole" || len(entries) != 1 {
		t.Errorf("a folder of the machine has %v, the file %q (%v)", entries, text, err)
	}
	if _, err := os.Lstat("/etc/viplab-was-here"); !os.IsNotExist(err) {
		t.Errorf("a file in /etc: %v", err)
	}
	must(t, bystander.Process.Signal(syscall.Signal(0)))
	must(t, w.apply(ctx, good))
	must(t, good.Stop(ctx))
	must(t, bystander.Process.Kill())
	_ = bystander.Wait()
}

// ownPid returns the number of this process.
func ownPid(t *testing.T) string {
	t.Helper()
	self, err := os.Readlink("/proc/self")
	must(t, err)
	return self
}

// hostState returns the state of the network namespace of the harness, and settings that no namespace covers.
func hostState(t *testing.T) (hosttest.Snapshot, string) {
	t.Helper()
	network, err := hosttest.Take()
	must(t, err)
	delete(network, "processes") // the program on the other node starts some
	var settings []string
	for _, path := range []string{"kernel/core_pattern", "vm/swappiness", "kernel/pid_max", "kernel/hostname"} {
		text, err := os.ReadFile("/proc/sys/" + path)
		must(t, err)
		settings = append(settings, strings.TrimSpace(string(text)))
	}
	return network, strings.Join(settings, " ")
}

// A symbolic link in the program's folder leads no write of the harness out of it.
func TestTheHarnessFollowsNoLinksOfAProgram(t *testing.T) {
	w := newWorld(t)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("whole"), 0o644))
	i := w.start("n1", "sh", "-c", "ln -s "+victim+" refused; ln -s "+victim+" refuse; echo made; sleep infinity")
	for !strings.Contains(i.log.tail(100), "made") {
		i.life.output.catchUp()
	}
	if r, err := i.RefuseWrites(t.Context()); err == nil {
		t.Errorf("writes are refused by %v", r)
	}
	if text, err := os.ReadFile(victim); string(text) != "whole" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
	must(t, i.Stop(t.Context()))
}

// A program finds the tools that are meant for it although they are below /run, and they can record there.
func TestProgramsShareAFolderOfTools(t *testing.T) {
	tools, err := sandbox.TempDir("tools-")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(tools, "tool"), []byte("#!/bin/sh\necho used >"+tools+"/record\n"), 0o755))
	t.Setenv(ToolFolderVariable, tools)
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	w := newWorld(t)
	i := w.start("n1", "sh", "-c", "tool; echo made; sleep infinity")
	for !strings.Contains(i.log.tail(100), "made") {
		i.life.output.catchUp()
	}
	if text, err := os.ReadFile(filepath.Join(tools, "record")); string(text) != "used\n" {
		t.Errorf("the record: %q, %v; the program says %q", text, err, i.log.tail(300))
	}
	must(t, i.Stop(t.Context()))
}

// SIGTERM reaches programs that do not handle it, and tells their end apart from an exit code.
func TestAProgramIsNoProcessOne(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", "sh", "-c", "sleep infinity & wait")
	must(t, i.Stop(within(t, patience)))
	if !strings.HasPrefix(i.life.end, "was ended by SIGTERM") {
		t.Error(i.life.end)
	}
	if DefaultLimits.orDefault() != container.Limits(DefaultLimits) {
		t.Error("the defaults are not the defaults")
	}
}
