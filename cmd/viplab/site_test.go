// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// datedReport writes the report of a run on a day of November 2026 into a folder.
func datedReport(t *testing.T, folder string, day int, s spec.Scenario, v spec.Verdict) {
	t.Helper()
	file := filepath.Join(s.ID, "p", "failure.txt")
	result := spec.Result{Scenario: s, Proxier: "p", Verdict: v, Reason: "because", Files: []string{file}}
	r := report.New("v1", "6.1", "dual", []spec.Result{result})
	r.Date = time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC)
	if err := r.WriteJSON(folder); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteFile(filepath.Join(folder, file), []byte("evidence")); err != nil {
		t.Fatal(err)
	}
}

func TestSiteOfReportsBelowAFolder(t *testing.T) {
	s := allScenarios(t)[0]
	folder := t.TempDir()
	datedReport(t, filepath.Join(folder, "b", "old"), 1, s, spec.Pass)
	datedReport(t, filepath.Join(folder, "a"), 2, s, spec.Fail)
	out := filepath.Join(folder, "public")
	for range 2 { // the second time the site of the first is below the folder
		if text, err := runRoot("site", folder, "--out", out); err != nil || !strings.HasPrefix(text, "2 reports: ") {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	for name, want := range map[string]string{
		"index.html":                                            `<a class="fail" href="compare/p-2026-11-02T120000Z.html">1</a>`,
		"p.html":                                                "1 regression</a> in the newest version",
		"compare/p-2026-11-02T120000Z.html":                     "../reports/2026-11-02T120000Z/report.html#" + s.ID + "/p",
		"reports/2026-11-02T120000Z/report.html":                s.Why,
		"reports/2026-11-01T120000Z/report.json":                s.ID,
		"reports/2026-11-02T120000Z/" + s.ID + "/p/failure.txt": "evidence",
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
}

func TestSiteSaysWhatIsNoReport(t *testing.T) {
	empty, undated := t.TempDir(), shardReport(t, 1, allScenarios(t)[0], spec.Pass)
	for path, want := range map[string]string{
		empty:                           "there is no report.json in it or below it",
		filepath.Join(empty, "nothing"): "there is no report; viplab conform",
		undated:                         "the report has no date",
	} {
		out := filepath.Join(t.TempDir(), "site")
		if _, err := runRoot("site", path, "--out", out); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s it says %v, want %q", path, err, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("of %s it writes a site", path)
		}
	}
}
