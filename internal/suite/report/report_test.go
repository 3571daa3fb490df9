// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// mixed is a report of two proxiers and three scenarios.
func mixed() Report {
	skip := result("a-one", "q", spec.Skip)
	skip.Reason, skip.Cause = "not offered: q lacks topology", spec.NotOffered
	pass := result("a-one", "p", spec.Pass)
	pass.Reason = "an open connection: Reply\nit took 3ms"
	fail := result("b-two", "p", spec.Fail)
	fail.Took, fail.Reason = 30*time.Millisecond, "step 1: 2 of 3 rows do not hold\n..."
	fail.Probed = []spec.Probed{
		{Probe: "a -> web", Want: "Reply", Got: "Reply", Holds: true}, {Known: "a bug", Probe: "b -> web"},
		{Probe: "c -> web", Want: "Reply by a2", Got: "Silence (fenced by 4 echoes in 2 ms, and so on)"},
		{Probe: "d -> web"},
	}
	broken := result("b-two", "q", spec.Broken)
	broken.Reason = "no disk\nagain: it"
	return New("v", "k", "c", []spec.Result{pass, fail, result("c-three", "p", spec.Pass), skip,
		broken, result("c-three", "q", spec.Pass)})
}

// sums returns what is printed, each line with single blanks.
func sums(t *testing.T, style Style) (lines []string) {
	t.Helper()
	var b bytes.Buffer
	if err := mixed().WriteSums(&b, style); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	return lines
}

const countsOfP, countsOfQ = "p fail: 2 passed, 1 failed, 0 broken; 0 not applicable, 0 not offered",
	"q fail: 1 passed, 0 failed, 1 broken; 0 not applicable, 1 not offered"

func TestMatrixShowsEveryCellAndReason(t *testing.T) {
	lines := sums(t, Style{All: true})
	for _, want := range []string{
		"scenario p q", "a-one P0 ✓ 20ms –", "b-two P0 ✗ 30ms ! 20ms", "c-three P0 ✓ 20ms ✓ 20ms", countsOfP, countsOfQ,
		"– not offered: q lacks topology: a-one", "· a-one on p: an open connection: Reply", "· a-one on p: it took 3ms",
		"slowest on p: b-two 30ms, a-one 20ms, c-three 20ms",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// Without All, only rows in which something failed are shown, skips are counted, and the counts come last, after what
// was wrong.
func TestSumsAreWhatIsUnusual(t *testing.T) {
	want := []string{
		"scenario p q", "b-two P0 ✗ !", "", "– q: 1 skipped: 1 not offered (topology)", "",
		"✗ b-two on p: step 1: c -> web: Silence, want Reply by a2", "! b-two on q: broken: no disk", "",
		countsOfP, countsOfQ,
	}
	if lines := sums(t, Style{}); !slices.Equal(lines, want) {
		t.Errorf("got\n%s", strings.Join(lines, "\n"))
	}
}

// reasonLines returns the lines that say what was wrong, of a report with these results.
func reasonLines(t *testing.T, style Style, results ...spec.Result) (lines []string) {
	t.Helper()
	var b bytes.Buffer
	if err := New("v", "k", "c", results).WriteSums(&b, style); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if strings.HasPrefix(l, "✗ ") || strings.HasPrefix(l, "! ") || strings.HasPrefix(l, "and ") {
			lines = append(lines, strings.TrimSuffix(l, "\n"))
		}
	}
	return lines
}

// failing returns the result of a scenario that failed or was broken.
func failing(id, proxier string, v spec.Verdict, reason string) spec.Result {
	x := result(id, proxier, v)
	x.Reason = reason
	return x
}

// The end of a long log says what was wrong: a line for each failure, once for proxiers that fail alike, and few lines.
func TestSumsSayWhatWasWrong(t *testing.T) {
	long := failing(strings.Repeat("i", 60), "p", spec.Fail, strings.Repeat("é", 200))
	want := []string{"✗ a-one on p, q, r and 1 more: none", "✗ a-one on t: other",
		"✗ " + strings.Repeat("i", 47) + "... on p: " + strings.Repeat("é", 100-2-50-7-3) + "..."}
	var results []spec.Result
	for _, p := range []string{"p", "q", "r", "s"} {
		results = append(results, failing("a-one", p, spec.Fail, "none\nmore of "+p))
	}
	got := reasonLines(t, Style{}, append(results, failing("a-one", "t", spec.Fail, "other"), long)...)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var many []spec.Result
	for i := range 23 {
		many = append(many, failing(string(rune('a'+i)), "p", spec.Fail, "none"))
	}
	for n, last := range map[int]string{20: "✗ t on p: none", 23: "and 3 more: see report.html"} {
		if lines := reasonLines(t, Style{}, many[:n]...); len(lines) != min(n, 21) || lines[len(lines)-1] != last {
			t.Errorf("of %d failures it prints %q, want %q at the end", n, lines, last)
		}
	}
}

// The block of the only failure stands directly above, unless the sums are long. What is interrupted says nothing.
func TestSumsRepeatNoBlock(t *testing.T) {
	fail, known := failing("a-one", "p", spec.Fail, "none"), make([]spec.Result, fewLines)
	for i := range known {
		known[i] = result(string(rune('a'+i)), "p", spec.Known)
	}
	for name, c := range map[string]struct {
		style   Style
		results []spec.Result
		lines   int
	}{
		"one failure":                 {Style{}, []spec.Result{fail}, 0},
		"one failure below many rows": {Style{}, append(known, fail), 1},
		"interrupted":                 {Style{Interrupted: true}, twoThat(spec.Broken), 0},
		"broken without interruption": {Style{}, twoThat(spec.Broken), 2},
		"failed before interruption":  {Style{Interrupted: true}, twoThat(spec.Fail), 2},
	} {
		if got := reasonLines(t, c.style, c.results...); len(got) != c.lines {
			t.Errorf("%s: want %d lines: %q", name, c.lines, got)
		}
	}
}

// twoThat returns two results with a verdict.
func twoThat(v spec.Verdict) []spec.Result {
	return []spec.Result{failing("a-one", "p", v, "context canceled"), failing("b-two", "p", v, "the limit is over")}
}

func TestSumsAgreeWithTheirNouns(t *testing.T) {
	for want, p := range map[string]Proxier{
		"1 known (1 deviation), 0 failed, 0 broken; 0 not applicable, 0 not offered; 1 row not asked": {
			Known: 1, Issues: 1, OmittedRows: 1},
		"3 known (2 deviations), 0 failed, 0 broken; 0 not applicable, 0 not offered; 4 rows not asked": {
			Known: 3, Issues: 2, OmittedRows: 4},
	} {
		if got := p.counts(); got != "0 passed, "+want {
			t.Errorf("got  %s\nwant 0 passed, %s", got, want)
		}
	}
}

func TestColoursChangeNoColumns(t *testing.T) {
	escapes := regexp.MustCompile("\033\\[[0-9]*m")
	var plain, coloured bytes.Buffer
	for b, style := range map[*bytes.Buffer]Style{&plain: {}, &coloured: {Colour: true}} {
		if err := errors.Join(mixed().WriteFailures(b, style), mixed().WriteSums(b, style)); err != nil {
			t.Fatal(err)
		}
	}
	if got := escapes.ReplaceAllString(coloured.String(), ""); got != plain.String() || got == coloured.String() {
		t.Errorf("got\n%s\nwant\n%s", coloured.String(), plain.String())
	}
}

// A failure is a block of bounded length that ends with the command that repeats it. It has no stacks.
func TestAFailureFitsOnAScreen(t *testing.T) {
	x := result("a-one", "p", spec.Fail)
	x.Scenario.Why, x.Files = "It works.", []string{"a-one/p/n1-rules.txt"}
	x.Reason = strings.Repeat("a line\n", 50) + "the last\nagain: viplab conform --focus a-one"
	var b bytes.Buffer
	if err := ResultOf(x).WriteFailure(&b, Style{Out: "out"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) > 24 || lines[0] != "✗ a-one on p" || lines[1] != "  It works." ||
		!slices.Equal(lines[len(lines)-3:], []string{"  ... 32 more lines", "  files: out/a-one/p",
			"  again: viplab conform --focus a-one"}) {
		t.Errorf("%d lines:\n%s", len(lines), b.String())
	}
	x.Verdict, x.Reason = spec.Broken, "panic: no\ngoroutine 7 [running]:\nmain.go:1\nagain: it"
	b.Reset()
	if err := ResultOf(x).WriteFailure(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "goroutine") || !strings.Contains(text, "panic: no") ||
		!strings.Contains(text, "again: it") {
		t.Error(text)
	}
}

// Of a run whose shard is empty, nothing is wrong; of a whole run in which nothing ran, something is.
func TestAnEmptyShard(t *testing.T) {
	r := New("v", "k", "c", nil)
	r.SetVersion("p", "1.2")
	r.Suite.Shard, r.Suite.Whole = "2/2", 1
	if code := r.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	full := New("v", "k", "c", []spec.Result{result("a-one", "p", spec.Pass)})
	full.SetVersion("p", "1.2")
	full.Suite.Shard, full.Suite.Whole = "1/2", 1
	whole, err := Join(Part{"one", full}, Part{"two", r})
	if err != nil || whole.Suite.Shard != "" || whole.Proxiers[0].Passed != 1 || whole.ExitCode() != 0 {
		t.Errorf("%v: %+v", err, whole)
	}
}
