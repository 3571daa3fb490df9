// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

func result(id, proxier string, v spec.Verdict) spec.Result {
	return spec.Result{Scenario: spec.Scenario{ID: id, Priority: spec.P0}, Proxier: proxier, Verdict: v,
		Took: 20 * time.Millisecond}
}

func TestVerdictsAndExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		verdicts []spec.Verdict
		verdict  string
		code     int
	}{
		"all pass":              {[]spec.Verdict{spec.Pass, spec.Pass}, "pass", 0},
		"something was skipped": {[]spec.Verdict{spec.Pass, spec.Skip}, "partial", 0},
		"something failed":      {[]spec.Verdict{spec.Pass, spec.Fail}, "fail", 1},
		"failed and broken":     {[]spec.Verdict{spec.Broken, spec.Fail}, "fail", 1},
		"the harness broke":     {[]spec.Verdict{spec.Pass, spec.Broken}, "fail", 2},
		"everything skipped":    {[]spec.Verdict{spec.Skip}, "none", 2},
	} {
		var results []spec.Result
		for i, v := range c.verdicts {
			results = append(results, result("s-"+string(rune('a'+i)), "p", v))
		}
		r := New("v", "k", "c", results)
		if r.Proxiers[0].Verdict != c.verdict || r.ExitCode() != c.code {
			t.Errorf("%s: verdict %s, exit code %d; want %s, %d", name, r.Proxiers[0].Verdict, r.ExitCode(), c.verdict, c.code)
		}
	}
	if code := New("v", "k", "c", nil).ExitCode(); code != 2 {
		t.Errorf("an empty run ends with %d, want 2", code)
	}
}

// TestAPassNeedsEveryPromise: options that are not offered and other mechanisms do not prevent the verdict pass.
func TestAPassNeedsEveryPromise(t *testing.T) {
	for cause, want := range map[spec.Cause]string{
		spec.NotApplicable: "pass", spec.NotOffered: "pass", spec.NotImplemented: "partial", spec.NotRun: "partial",
	} {
		skipped := result("b-two", "p", spec.Skip)
		skipped.Cause = cause
		r := New("v", "k", "c", []spec.Result{result("a-one", "p", spec.Pass), skipped})
		if got := r.Proxiers[0]; got.Verdict != want || !strings.Contains(got.counts(), "1 "+string(cause)) {
			t.Errorf("%s: verdict %s, want %s: %s", cause, got.Verdict, want, got.counts())
		}
	}
}

// The fields of report.json are a contract with the tools that read it.
func TestJSONKeepsItsFields(t *testing.T) {
	folder := t.TempDir()
	skipped := result("b-two", "p", spec.Skip)
	skipped.Missing, skipped.Cause = []spec.Feature{spec.Topology}, spec.NotOffered
	if err := New("1.0", "6.1", "cluster", []spec.Result{result("a-one", "p", spec.Pass),
		skipped}).WriteJSON(folder); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	const contract = `{"apiVersion":"viplab/v1","kind":"Report","suite":{"version":"1.0","scenarios":2},"kernel":"6.1","cluster":"cluster",
		"proxiers":[{"name":"p","verdict":"pass","passed":1,"known":0,"issues":0,"failed":0,
		 "skipped":1,"not_applicable":0,"not_offered":1,"not_implemented":0,"not_run":0,"broken":0,"not_asked":0,"took_ms":40}],
		"results":[
		 {"scenario":"a-one","proxier":"p","priority":"P0","verdict":"pass","reason":"","missing":[],"took_ms":20,"files":[]},
		 {"scenario":"b-two","proxier":"p","priority":"P0","verdict":"skip","reason":"","missing":["topology"],"cause":"not offered","took_ms":20,"files":[]}]}`
	if err := json.Unmarshal([]byte(contract), &want); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestMatrixShowsEveryCellAndReason(t *testing.T) {
	skip := result("a-one", "q", spec.Skip)
	skip.Reason = "q lacks topology"
	pass := result("a-one", "p", spec.Pass)
	pass.Reason = "an open connection: Reply\nit took 3ms"
	fail := result("b-two", "p", spec.Fail)
	fail.Took = 30 * time.Millisecond
	r := New("v", "k", "c", []spec.Result{pass, fail, skip, result("b-two", "q", spec.Broken)})
	var b bytes.Buffer
	if err := r.WriteMatrix(&b); err != nil {
		t.Fatal(err)
	}
	fields := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	var lines []string
	for _, l := range strings.Split(b.String(), "\n") {
		lines = append(lines, fields(l))
	}
	for _, want := range []string{
		"scenario p q", "a-one P0 ✓ 20ms –", "b-two P0 ✗ 30ms ! 20ms",
		"p fail: 1 passed, 1 failed, 0 broken; 0 not applicable, 0 not offered", "q fail: 0 passed, 0 failed, 1 broken; 0 not applicable, 0 not offered, 1 not run",
		"– q lacks topology: a-one", "· a-one on p: an open connection: Reply", "· a-one on p: it took 3ms",
		"slowest on p: b-two 30ms, a-one 20ms", "slowest on q: b-two 20ms",
	} {
		found := false
		for _, l := range lines {
			found = found || l == want
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
}
