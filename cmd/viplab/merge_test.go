// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// shardReport writes the report of a shard of two with one scenario, and returns its folder.
func shardReport(t *testing.T, shard int, s spec.Scenario, v spec.Verdict) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "shard")
	file := filepath.Join(s.ID, "p", "failure.txt")
	r := report.New("v1", "6.1", "dual", []spec.Result{
		{Scenario: s, Proxier: "p", Verdict: v, Reason: "because", Files: []string{file}},
	})
	r.Suite.Shard, r.Suite.Whole = fmt.Sprintf("%d/2", shard), 2
	if err := r.WriteJSON(folder); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteFile(filepath.Join(folder, file), []byte("evidence")); err != nil {
		t.Fatal(err)
	}
	return folder
}

func runRoot(args ...string) (string, error) {
	cmd := newRoot()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestMergeAndCompareShards(t *testing.T) {
	all := allScenarios(t)
	one, two := shardReport(t, 1, all[0], spec.Pass), shardReport(t, 2, all[1], spec.Fail)
	out := filepath.Join(t.TempDir(), "all")
	if text, err := runRoot("merge", one, filepath.Join(two, "report.json"), "--out", out); err != exitCode(1) {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range []string{"report.html", "junit.xml", filepath.Join(all[1].ID, "p", "failure.txt")} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !bytes.Contains(page, []byte(all[1].Why)) {
		t.Errorf("the page lacks what %s is about: %v", all[1].ID, err)
	}
	if _, err := runRoot("merge", one, "--out", out); err == nil || !strings.Contains(err.Error(), "p lacks shard 2/2") {
		t.Errorf("without a shard it says %v", err)
	}
	text, err := runRoot("compare", one, two)
	if err != exitCode(1) || !strings.Contains(text, "✗ "+all[1].ID+" on p: regression: fail, was not there") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err := runRoot("compare", one, one, "-o", "json"); err != nil || !strings.Contains(text, `"same": 1`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// A report may come from elsewhere: it names no file outside of its folder.
func TestMergeCopiesNothingFromElsewhere(t *testing.T) {
	folder := shardReport(t, 1, spec.Scenario{ID: "../../outside"}, spec.Fail)
	_, err := runRoot("merge", folder, "--out", filepath.Join(t.TempDir(), "all"))
	if err == nil || !strings.Contains(err.Error(), "a file outside of its folder") {
		t.Errorf("it says %v", err)
	}
}

func TestCompareSaysWhatIsNoReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	for text, want := range map[string]string{
		"": "it is no report", `{"kind": "Trace", "apiVersion": "viplab/v1"}`: `it is a "Trace"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := runRoot("compare", file, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("for %q it says %v, want %q", text, err, want)
		}
	}
}
