// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/spec"
)

func TestCatalogueShowsVerdictsOfReports(t *testing.T) {
	s := allScenarios(t)[0]
	run := func(folder, proxier string, v spec.Verdict) string {
		folder = filepath.Join(t.TempDir(), folder)
		if err := report.New("", "", "", []spec.Result{{Scenario: s, Proxier: proxier,
			Verdict: v}}).WriteJSON(folder); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	html := filepath.Join(t.TempDir(), "new", "coverage.html")
	cmd := newRoot()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"catalogue", "--html", html, run("one", "p", spec.Pass),
		filepath.Join(run("two", "q", spec.Skip), "report.json"), run("three", "q", spec.Fail)})
	if err := cmd.Execute(); err != nil && err != exitCode(1) {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if got := strings.Fields(lines[0]); !slices.Equal(got, []string{"row", "scenario", "kind", "p", "q"}) {
		t.Errorf("its head is %q", lines[0])
	}
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, " "+s.ID+" ") })
	if i < 0 || !slices.Equal(strings.Fields(lines[i])[2:], []string{s.ID, "promise", "pass", "fail"}) {
		t.Errorf("%s does not stand as passed on p and failed on q in\n%s", s.ID, out.String())
	}
	if page, err := os.ReadFile(html); err != nil || !bytes.Contains(page, []byte(s.Why)) {
		t.Errorf("the page: %v", err)
	}
}

func TestCatalogueNamesRowsWithoutAScenario(t *testing.T) {
	page := report.Page{Groups: []report.PageGroup{{Rows: []report.PageRow{
		{ID: "has-one", Scenarios: []report.PageScenario{{ID: "has-one"}}}, {ID: "has-none"},
	}}}}
	var out bytes.Buffer
	missing, err := writeCatalogue(&out, report.Report{}, page, false)
	if err != nil || !slices.Equal(missing, []string{"has-none"}) {
		t.Errorf("missing: %v, %v", missing, err)
	}
	if !strings.Contains(out.String(), "NO SCENARIO") || !strings.Contains(out.String(), "2 rows, 1 with a scenario") {
		t.Errorf("it prints\n%s", out.String())
	}
}

func TestWideCatalogue(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	page := report.Page{Groups: []report.PageGroup{{Rows: []report.PageRow{
		{ID: "a", Behaviour: "Given " + words(30), Source: "a KEP", Scenarios: []report.PageScenario{
			{ID: "a-one", Kind: "option", Authorities: []string{"https://one", "https://two"}},
			{ID: "a-second", Kind: "option", Authorities: []string{"https://two"}}}},
		{ID: "b-longer", Behaviour: "When", Modes: "all", Source: "→", Scenarios: []report.PageScenario{}},
	}}}}
	const missing = "b-longer    NO SCENARIO\n"
	want := "row         scenario  kind\n" +
		"a           a-one     option\n" +
		"a           a-second  option\n" +
		"    behaviour: Given " + words(16) + "\n    " + words(14) + "\n    source: a KEP\n" +
		"    authority: https://one, https://two\n" +
		missing + "    behaviour: When\n    modes: all\n    source: →\n"
	var out bytes.Buffer
	_, err := writeCatalogue(&out, report.Report{}, page, true)
	if err != nil || !strings.HasPrefix(out.String(), want) {
		t.Errorf("%v: it prints\n%s\nwant\n%s", err, out.String(), want)
	}
	if text := succeeds(t, "catalogue", "-o", "wide"); !strings.Contains(text, "\n    behaviour: Given one Ready") {
		t.Errorf("catalogue -o wide:\n%s", text)
	}
	refused(t, "catalogue -o json", `--output: "json": want wide`)
}

func TestCatalogueSaysWhereThereIsNoReport(t *testing.T) {
	cmd := newRoot()
	cmd.SetArgs([]string{"catalogue", "/nowhere/at/all"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "/nowhere/at/all: there is no report") {
		t.Errorf("it says %v", err)
	}
}

func TestScenarioShow(t *testing.T) {
	show := func(args ...string) (string, error) {
		cmd := newRoot()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"scenario", "show"}, args...))
		err := cmd.Execute()
		return out.String(), err
	}
	text, err := show("etp-local-source-preserved", "--nodes", "worker-1")
	if err != nil || !strings.Contains(text, "nodeName: worker-1") ||
		!strings.Contains(text, "namespace: etp-local-source-preserved") {
		t.Errorf("it prints %q, %v", text, err)
	}
	if _, err := show("no-such-row"); err == nil || !strings.Contains(err.Error(), `there is no scenario "no-such-row"`) {
		t.Errorf("for a name that is none it says %v", err)
	}
	if _, err := show("hairpin-among-many", "--nodes", "a,b,c,d"); err == nil ||
		!strings.Contains(err.Error(), "4 names for the lab's 3 nodes") {
		t.Errorf("for too many nodes it says %v", err)
	}
}

func allScenarios(t *testing.T) []spec.Scenario {
	t.Helper()
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
