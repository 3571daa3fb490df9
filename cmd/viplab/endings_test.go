// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/hosttest"
	"github.com/viplab/viplab/internal/live/registry"
)

// tiny mounts a file system with little space over a folder, and returns the function that ends it. The last process of
// a lab may hold it for a moment longer.
func tiny(t *testing.T, folder, options string) (end func()) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=0700,"+options); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		os.Remove(folder)
	}
}

// The folder of labs is on a file system that is full, at the start or a moment later: up says so, and leaves nothing.
func TestUpOnAFullDisk(t *testing.T) {
	const folder = "/run/viplab-labs"
	started := 0
	for _, options := range []string{
		"nr_inodes=1", "nr_inodes=2", "nr_inodes=3", "nr_inodes=4", "nr_inodes=5", "nr_inodes=6", "nr_inodes=7",
		"size=4k", "size=16k", "size=20k", "size=64k",
	} {
		end := tiny(t, folder, options)
		code, _, stderr := outcome(t, "up", "full", "--nodes", "1", "--ip", "4")
		switch {
		case code == 0:
			started++
			succeeds(t, "down", "full")
		case code != 2 || !strings.Contains(stderr, "no space left on device") || !strings.Contains(stderr, "full"):
			t.Errorf("%s: exit code %d, %q", options, code, stderr)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", options, left, err)
		}
		end()
	}
	if started == 0 || started > 4 {
		t.Errorf("%d labs have started, want those with space", started)
	}
	nothingLeft(t)
}

func TestResultsOnAFullDisk(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	defer tiny(t, out, "size=4k")()
	code, stdout, stderr := outcome(t, "conform", "--ip", "4", "--focus", "^clusterip-every-node$",
		"--proxier", "none", "--out", out)
	if want := "report.json: no space left on device"; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("conform: exit code %d, %q, want 2 and %q", code, stderr, want)
	}
	if want := "none    fail: 0 passed, 1 failed"; !strings.Contains(stdout, want) {
		t.Errorf("conform: the output lacks %q:\n%s", want, stdout)
	}
	withLab(t, "--nodes", "1", "-f", write(t, "web.yaml", webLab))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, line := range []string{
		"ls", "status", "get pods -A", "rules n1", "probe client n1:30080", "conntrack n1",
		"capture n1 --pcapng --count 1", "capture n1 --count 1",
	} {
		cmd := viplab(t, strings.Fields(line)...)
		cmd.Stdout = full
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewScanner(stderr)
		if strings.HasPrefix(line, "capture") {
			awaitLine(t, said, "capturing at n1")
			outcome(t, "exec", "client", "--", "curl", "-s", "--max-time", "60", "192.168.7.11:30080") // a packet
		}
		last := ""
		for said.Scan() {
			last = said.Text()
		}
		cmd.Wait()
		if want := "stdout: no space left on device"; cmd.ProcessState.ExitCode() != 2 || !strings.Contains(last, want) {
			t.Errorf("%s: exit code %d, %q, want 2 and %q", line, cmd.ProcessState.ExitCode(), last, want)
		}
	}
	succeeds(t, "exec", "client", "--", "curl", "-s", "192.168.7.11:30080")
}

// processes returns the processes with a command line.
func processes(args ...string) []int {
	var out []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if string(text) == strings.Join(args, "\x00")+"\x00" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			out = append(out, pid)
		}
	}
	return out
}

const sleeper = `
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec: {containers: [{name: main, image: busybox, command: [sleep, "424242"]}, {name: other, image: busybox, command: [sleep, "1000000"]}]}
`

// A container whose process is killed from outside starts again. Nothing else of the lab changes.
func TestAKilledProcessOfAPod(t *testing.T) {
	withLab(t, "--nodes", "1", "-f", write(t, "pod.yaml", sleeper))
	pids := processes("sleep", "424242")
	if len(pids) != 1 {
		t.Fatalf("the pod has the processes %v, want one", pids)
	}
	within := viplab(t, "exec", "sleeper", "--", "sh", "-c", "echo in; sleep 1000")
	stdout, err := within.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := within.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within.Wait() // it ends with the container
	if code := within.ProcessState.ExitCode(); code == 0 {
		t.Error("a command in the killed container succeeded")
	}
	deadline := time.Now().Add(patience)
	for {
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(succeeds(t, "get", "pod", "sleeper", "-o", "json")), &pod); err != nil {
			t.Fatal(err)
		}
		restarts := map[string]int32{}
		for _, c := range pod.Status.ContainerStatuses {
			restarts[c.Name] = c.RestartCount
			if last := c.LastTerminationState.Terminated; c.Name == "main" && c.Ready && last != nil {
				if last.ExitCode != 137 {
					t.Errorf("the container ended with %+v, want exit code 137", last)
				}
				if restarts["other"] != 0 {
					t.Error("the other container started again, too")
				}
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the container does not start again: %+v", pod.Status)
		}
	}
}

// patience bounds what takes a moment, on the slowest machine.
const patience = time.Minute

// rounds returns how often tests start and end labs: VIPLAB_ROUNDS, or a few times.
func rounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("VIPLAB_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("VIPLAB_ROUNDS: %v", err)
	}
	return n
}

// unchanged fails the test unless the machine is as it was before f. The last processes of a killed lab have released
// its lock a moment before they are gone.
func unchanged(t *testing.T, f func()) {
	t.Helper()
	before, err := hosttest.Take()
	if err != nil {
		t.Fatal(err)
	}
	f()
	nothingLeft(t)
	var diff []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		after, err := hosttest.Take()
		if err != nil {
			t.Fatal(err)
		}
		if diff = before.Diff(after); len(diff) == 0 {
			return
		}
	}
	t.Errorf("the machine is changed:\n%s", strings.Join(diff, "\n"))
}

func TestUpAndDownLeaveNothing(t *testing.T) {
	unchanged(t, func() {
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				name := fmt.Sprint("twin", i)
				for range (rounds(t, 6) + 1) / 2 {
					for _, args := range [][]string{{"up", name, "--nodes", "2", "--ip", "4"}, {"down", name}} {
						if code, _, stderr := outcome(t, args...); code != 0 {
							t.Errorf("viplab %v: %s", args, stderr)
						}
					}
				}
			})
		}
		both.Wait()
	})
}

// Whatever a kill hits during the start, "up" itself or a process of the lab, the next commands find nothing of it.
func TestKillsAtRandomMomentsLeaveNothing(t *testing.T) {
	pod := write(t, "pod.yaml", sleeper)
	for range rounds(t, 4) {
		after := rand.N(time.Second)
		victim := []string{"up", "holder", "init"}[rand.N(3)]
		unchanged(t, func() {
			cmd := viplab(t, "up", "struck", "--nodes", "2", "-f", pod)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-time.After(after)
			strike(t, victim, cmd)
			cmd.Wait()
			down("struck") // after a kill of "up", the lab may go on
			awaitNoLab(t)
		})
		if t.Failed() {
			t.Fatalf("after a kill of %s after %s", victim, after)
		}
	}
}

// strike kills a process of a lab that starts, or what starts it if there is no such process yet.
func strike(t *testing.T, victim string, cmd *exec.Cmd) {
	t.Helper()
	pid := cmd.Process.Pid
	if text, err := os.ReadFile("/run/viplab-labs/struck/" + registry.Process); err == nil && victim != "up" {
		if holder, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pid = holder
		}
		if child := childOf(pid); victim == "init" && child > 0 {
			pid = child
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != unix.ESRCH {
		t.Error(err)
	}
}

// awaitNoLab waits until the kernel has ended what is left of killed labs.
func awaitNoLab(t *testing.T) {
	t.Helper()
	labs, err := registry.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		if ended, err := l.Ended(); err == nil {
			<-ended
		}
	}
	succeeds(t, "ls") // removes the folders
}

// A lab goes on when somebody sets the machine's clock: by years, in both directions.
func TestAClockThatJumps(t *testing.T) {
	if line, _ := os.ReadFile("/proc/cmdline"); !strings.Contains(string(line), "viplab.vm=1") {
		t.Skip("the clock is this machine's: only in a virtual machine does the test set it")
	}
	withLab(t, "--nodes", "2", "-f", write(t, "web.yaml", webLab))
	began := time.Now()
	defer func() { setClock(t, time.Now().Add(time.Since(began))) }()
	for _, years := range []int{30, -20, 0} {
		now := began.AddDate(years, 0, 0).Add(time.Minute)
		setClock(t, now)
		// Each command needs the API's certificate, and waits for pods, endpoints and the proxier.
		file := write(t, "more.yaml", strings.NewReplacer("web", fmt.Sprint("web", years+50), "30080", fmt.Sprint(30200+years)).
			Replace(webLab))
		succeeds(t, "apply", "-f", file)
		succeeds(t, "get", "pods")
		succeeds(t, "status")
		succeeds(t, "exec", "client", "--", "curl", "-s", fmt.Sprint("192.168.7.11:", 30200+years))
		succeeds(t, "delete", "-f", file)
		if out := succeeds(t, "ls"); !regexp.MustCompile(`looked-into +(\d+m)?\d+s `).MatchString(out) {
			t.Errorf("the age of the lab has jumped:\n%s", out)
		}
	}
}

func setClock(t *testing.T, to time.Time) {
	t.Helper()
	at := unix.NsecToTimespec(to.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &at); err != nil {
		t.Fatal(err)
	}
}
