// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/expect"
)

func TestConformJudgesGeneratedCases(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "conform", "--random", "8", "--seed", "5", "--ip", "4", "--proxier", "nftables",
		"--out", folder)
	if code != 0 || !strings.Contains(stdout, "nftables: seed 5: 8 cases, ") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	r, err := report.Read(folder)
	if err != nil || len(r.Coverage) != 1 {
		t.Fatalf("%v: %+v", err, r.Coverage)
	}
	stamped(t, r)
	if c := r.Coverage[0]; c.Cases != 8 || c.States < 8 || c.Rows < 100 || len(c.Rules) == 0 || len(c.Never) == 0 {
		t.Errorf("coverage %+v", c)
	}
}

// A failure is kept whenever the run ends, and the next run begins with it.
func TestAnInterruptedRunKeepsItsFailure(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	args := []string{"conform", "--seed", "5", "--ip", "4", "--proxier", "nftables", "--fault", "udp-ports-lost",
		"--out", folder}
	cmd := viplab(t, append(args, "--random", "8")...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if name, _, is := strings.Cut(lines.Text(), " fails; it is made smaller, "); is && id == "" {
			_, id, _ = strings.Cut(name, ": ")
			if err := cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // by the interrupt
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stdout.String(), id+" fails.") || id == "" {
		t.Fatalf("exit code %d, want 1, and %q:\n%s", code, id, stdout.String())
	}
	if kept, err := filepath.Glob(filepath.Join(folder, "random", "nftables", id+".*")); err != nil || len(kept) != 2 {
		t.Fatalf("%v: kept %v, want two files of %s", err, kept, id)
	}
	code, again, problem := outcome(t, append(args, "--random", "1", "--time", "1s")...)
	if code != 1 || !strings.Contains(again, "nftables: "+id+" fails.") {
		t.Errorf("exit code %d; the next run must begin with %s:\n%s%s", code, id, again, problem)
	}
}

// While a case is made smaller, a pod may lose a port in one of its states, and is then made anew. Its connections end
// with it.
func TestPodsThatAreMadeAnewKeepNoConnections(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	saved := filepath.Join(folder, "random", "nftables")
	if err := os.MkdirAll(saved, 0o755); err != nil {
		t.Fatal(err)
	}
	pod := func(ports string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a1","labels":{"app":"web"}},"spec":{"nodeName":"n1",
			"containers":[{"name":"echo","image":"echo",
				"ports":[{"containerPort":8080,"protocol":"UDP"}` + ports + `]}]}}`
	}
	state := func(ports string) string {
		return `{"pods":[` + pod(ports) + `],"services":[{"kind":"Service","apiVersion":"v1","metadata":{"name":"s1"},
			"spec":{"selector":{"app":"web"},"ports":[{"protocol":"UDP","port":80,"targetPort":8080}]}}]}`
	}
	data := `{"id":"random-1-1","states":[` + state(`,{"containerPort":8081}`) + "," + state("") + "]}"
	if err := os.WriteFile(filepath.Join(saved, "random-1-1.json"), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := outcome(t, "conform", "--random", "1", "--seed", "5", "--ip", "4", "--proxier", "nftables",
		"--out", folder)
	if code != 0 || !strings.Contains(stdout, "nftables: seed 5: 2 cases, ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// With --write-expectations, a run goes on after failures, and writes down the rows that failed.
func TestDeviationsOfGeneratedCasesAreWrittenDown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "known.yaml")
	code, stdout, stderr := outcome(t, "conform", "--random", "9", "--seed", "5", "--ip", "4", "--proxier", "nftables",
		"--fault", "external-policy-ignored", "--out", t.TempDir(), "--write-expectations", file)
	if code != 1 || !strings.Contains(stdout, " of 9 cases fail") || !strings.Contains(stdout, ": 9 cases, ") {
		t.Fatalf("exit code %d, want 1, and how many of all 9 cases fail:\n%s%s", code, stdout, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, err := expect.ParseDraft(file, data)
	if err != nil || len(written.Expect) < 2 {
		t.Fatalf("%v: %s", err, data)
	}
	number := regexp.MustCompile(`#[0-9]`)
	for _, e := range written.Expect {
		rows := strings.Join(e.Rows, " ")
		if e.Scenario != expect.Generated || !strings.Contains(rows, "-local") || number.MatchString(rows) {
			t.Errorf("entry %+v, want one of a row of generated cases with policy Local, and a pattern as number", e)
		}
	}
}

// A run that is interrupted before a case fails says how far it was.
func TestAnInterruptedRunSaysHowFarItWas(t *testing.T) {
	t.Parallel()
	cmd := viplab(t, "conform", "--random", "100000", "--seed", "5", "--ip", "4", "--proxier", "nftables",
		"--out", t.TempDir())
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if last = lines.Text(); strings.HasPrefix(last, "nftables: 8 of 100000 cases, ") {
			if err := cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // by the interrupt
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.HasSuffix(last, "were judged, and none of them failed") {
		t.Errorf("exit code %d, want 2, and how far it was: %s", code, last)
	}
}

func TestFlagsOfGeneratedCases(t *testing.T) {
	t.Parallel()
	refused(t, "conform --random -1", "--random: -1")
	refused(t, "conform --random 0", "--random: 0: want a positive number")
	refused(t, "conform --seed 3", "--random N")
	refused(t, "conform --random 5 --focus ^hairpin", "--focus")
	refused(t, "conform --random 5 --time -1s", "--time: -1s")
}
