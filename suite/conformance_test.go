// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// named returns scenarios of the catalogue.
func named(t *testing.T, ids ...string) (out []spec.Scenario) {
	t.Helper()
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		for _, s := range all {
			if s.ID == id {
				out = append(out, s)
			}
		}
	}
	if len(out) != len(ids) {
		t.Fatalf("%d of the scenarios %v exist", len(out), ids)
	}
	return out
}

// options judge the proxier none, which serves nothing: it keeps the rules of allocation, which are the API's, and
// fails where an answer is wanted, as the expectation foresees.
func options(t *testing.T, out string) suite.Options {
	known, err := expect.Parse("known.yaml", []byte(`
proxier: none
expect:
- {scenario: clusterip-every-node, got: Unreachable, issue: none, reason: it serves nothing}
`))
	if err != nil {
		t.Fatal(err)
	}
	own := named(t, "base-external-to-pod-ip")[0]
	own.ID, own.Group = "own-base", "own"
	return suite.Options{
		Proxiers:  []spec.Proxier{none.New()},
		Version:   "v1.2.3",
		Scenarios: named(t, "nodeport-allocation-rules", "clusterip-every-node", "hairpin-clusterip"),
		Own:       []spec.Scenario{own},
		Skip:      map[string]string{"hairpin-clusterip": "mended in v1.3"},
		Expect:    []*expect.File{known},
		Out:       out,
	}
}

// outVariable names the folder of the report of TestAtTopLevel.
const outVariable = "VIPLAB_SUITE_OUT"

// TestAtTopLevel is what an importer's test is: RunConformance is its last statement, and the scenarios run after it
// has returned. In a process of its own one of them is skipped; here none is, because a test that is skipped on every
// kernel counts as a gap.
func TestAtTopLevel(t *testing.T) {
	o := options(t, os.Getenv(outVariable))
	if o.Out == "" {
		o.Scenarios = slices.DeleteFunc(o.Scenarios, func(s spec.Scenario) bool { return o.Skip[s.ID] != "" })
		o.Skip = nil
	}
	suite.RunConformance(t, o)
}

// atTopLevel runs TestAtTopLevel, or some of its scenarios, as "go test -run" does, and returns the report and what the
// test has printed.
func atTopLevel(t *testing.T, run string) (report.Report, string) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run", run)
	cmd.Env = append(os.Environ(), outVariable+"="+out)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := report.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"junit.xml", "report.html"} {
		if info, err := os.Stat(filepath.Join(out, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	return r, string(text)
}

func TestRunConformance(t *testing.T) {
	r, text := atTopLevel(t, "^TestAtTopLevel$")
	want := map[string]spec.Verdict{"nodeport-allocation-rules": spec.Pass, "own-base": spec.Pass,
		"clusterip-every-node": spec.Known, "hairpin-clusterip": spec.Skip}
	for _, x := range r.Results {
		if want[x.Scenario] != x.Verdict {
			t.Errorf("%s: %s (%s), want %s", x.Scenario, x.Verdict, x.Reason, want[x.Scenario])
		}
		delete(want, x.Scenario)
	}
	if len(want) > 0 || r.Proxiers[0].Version != "v1.2.3" || len(r.Proxiers[0].Features) == 0 {
		t.Errorf("missing %v, proxiers %+v", want, r.Proxiers)
	}
	if !strings.Contains(text, "--- SKIP: TestAtTopLevel/hairpin-clusterip") {
		t.Errorf("no skip in\n%s", text)
	}
}

func TestChosenByName(t *testing.T) {
	r, text := atTopLevel(t, "^TestAtTopLevel$/^own-base$")
	if len(r.Results) != 1 || r.Results[0].Scenario != "own-base" {
		t.Errorf("%+v, want the scenario that -run chooses", r.Results)
	}
	if !strings.Contains(text, "--- PASS: TestAtTopLevel/own-base") {
		t.Errorf("no pass in\n%s", text)
	}
}
