// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/report"
)

// signals may go to the command alone, as from kill, Kubernetes and service managers, or to its process group, as from
// Ctrl-C and timeout.
var signals = map[string]func(pid int) error{
	"SIGTERM to the process": func(pid int) error { return unix.Kill(pid, unix.SIGTERM) },
	"SIGINT to the group":    func(pid int) error { return unix.Kill(-pid, unix.SIGINT) },
}

// interruptedAfter runs a command, and sends a signal once n lines of its standard error have the text.
func interruptedAfter(t *testing.T, send func(pid int) error, n int, text string, args ...string) (code int,
	stdout string) {
	t.Helper()
	g := NewWithT(t)
	cmd := viplab(t, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	var all strings.Builder
	seen := 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			if seen++; seen == n {
				g.Expect(send(cmd.Process.Pid)).To(Succeed())
			}
		}
	}
	_ = cmd.Wait() // by the signal
	g.Expect(seen).To(BeNumerically(">=", n), all.String())
	return cmd.ProcessState.ExitCode(), out.String()
}

func TestASignalEndsAProofAndKeepsItsVerdicts(t *testing.T) {
	for name, send := range signals {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			code, stdout := interruptedAfter(t, send, 3, " caught", "prove", "--proxier", "iptables,nftables",
				"--ip", "4", "--focus", "^clusterip-", "--out", folder)
			g.Expect(code).To(Equal(2))
			g.Expect(stdout).To(MatchRegexp(`(?m)^interrupted: \d+ of 3\d faults in proxiers were judged`))
			g.Expect(stdout).To(MatchRegexp(
				`: ([3-9]|\d\d) caught, 0 survived, 0 broken, \d+ not applicable, \d+ not run`))
			g.Expect(stdout).To(ContainSubstring("✓  "))
			var p prove.Proof
			data, err := os.ReadFile(filepath.Join(folder, "prove.json"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(json.Unmarshal(data, &p)).To(Succeed())
			judged, all := p.Judged()
			g.Expect(judged).To(And(BeNumerically(">=", 3), BeNumerically("<", all)))
		})
	}
}

func TestASignalEndsASearchForFaultsAndKeepsItsVerdicts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, stdout := interruptedAfter(t, signals["SIGINT to the group"], 1, " caught", "prove", "--proxier",
		"iptables,nftables", "--ip", "4", "--random", "200", "--fault", "ports-lost", "--parallel", "1",
		"--out", folder)
	for _, want := range []string{" faults were found", "interrupted: ",
		" searches were judged; the others were not run", "report: " + folder} {
		if code != 2 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want 2; the output must have %q:\n%s", code, want, stdout)
		}
	}
}

func TestASignalEndsARunOfPoliciesAndKeepsItsVerdicts(t *testing.T) {
	for name, send := range signals {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			code, stdout := interruptedAfter(t, send, 1, ": 25 of 163 cases", "netpol", "--ip", "4", "--out", folder)
			g.Expect(code).To(Equal(2))
			g.Expect(stdout).To(MatchRegexp(`policy-nftables: \d+ passed, 0 failed, 0 broken, \d+ not run, `))
			g.Expect(stdout).To(MatchRegexp(`(?m)^interrupted: \d+ of 326 cases were judged; the others were not run`))
			r, err := report.Read(folder)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Results).To(HaveLen(326))
			g.Expect(r.Proxiers[0].Passed).To(BeNumerically(">=", 25))
			g.Expect(r.Proxiers[0].Passed + r.Proxiers[0].NotRun).To(Equal(163))
			g.Expect(r.Proxiers[1].NotRun).To(Equal(163))
		})
	}
}

// Expectations of a part of the cases would pass for those of all.
func TestASignalWritesNoExpectations(t *testing.T) {
	t.Parallel()
	known := filepath.Join(t.TempDir(), "known.yaml")
	code, stdout := interruptedAfter(t, signals["SIGTERM to the process"], 1, ": 25 of 163 cases", "netpol",
		"--ip", "4", "--enforcer", "policy-nftables", "--out", t.TempDir(), "--write-expectations", known)
	if _, err := os.Stat(known); code != 2 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("exit code %d, want 2; %v, want no file\n%s", code, err, stdout)
	}
}

// Of generated cases, the first one that fails is kept, even if it is not yet small.
func TestASignalEndsGeneratedPoliciesAndKeepsTheFailure(t *testing.T) {
	for name, c := range map[string]struct {
		text string // the line after which the signal comes
		args []string
		code int
		want []string
	}{
		"none fails": {": 250 of 9000 cases", []string{"--random", "9000"}, 2,
			[]string{" generated cases, seed 3: none failed, 0 broken, ",
				" of 9000 cases were judged; the others were not run"}},
		"one fails": {"and is being made smaller", []string{"--random", "200", "--fault", "endPort-ignored"}, 1,
			[]string{" fails; the run was interrupted before it was as small as possible", "again: viplab netpol",
				" generated cases, seed 3: fail, 0 broken, ", " of 200 cases were judged"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			code, stdout := interruptedAfter(t, signals["SIGINT to the group"], 1, c.text, append([]string{"netpol",
				"--enforcer", "policy-nftables", "--ip", "4", "--seed", "3", "--out", folder}, c.args...)...)
			g.Expect(code).To(Equal(c.code), stdout)
			for _, want := range c.want {
				g.Expect(stdout).To(ContainSubstring(want))
			}
			r, err := report.Read(folder)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Results).To(HaveLen(1))
			files, err := filepath.Glob(filepath.Join(folder, "policy-nftables-random-3-*.json"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(files).To(HaveLen(2 - c.code)) // the case that fails
		})
	}
}
