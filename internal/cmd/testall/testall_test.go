// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/y","Output":"    a_test.go:5: needs ipip: no such device\n"}
{"Action":"output","Package":"p","Test":"TestA/y","Output":"    --- SKIP: TestA/y (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA/y"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    a_test.go:9: want 1, got 2\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Test":"TestC","Output":"panic: boom\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
{"Action":"pass","Package":"r","Test":"TestD"}
{"Action":"output","Package":"r","Output":"ok  \tr\t0.1s\n"}
{"Action":"pass","Package":"r"}
`

func readEvents(t *testing.T) (*results, string) {
	t.Helper()
	r := newResults("here")
	var shown bytes.Buffer
	if err := r.read(strings.NewReader(events), &shown); err != nil {
		t.Fatal(err)
	}
	return r, shown.String()
}

func TestEventsAreCounted(t *testing.T) {
	r, shown := readEvents(t)
	if got, want := r.count(), (counts{passed: 2, failed: 1, skipped: 1, broken: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if reason := r.why[test{"p", "TestA/y"}]; reason != "needs ipip: no such device" {
		t.Errorf("reason %q", reason)
	}
	for _, want := range []string{"want 1, got 2", "panic: boom", "ok  \tr\t0.1s", "FAIL\tp\t0.1s"} {
		if strings.Count(shown, want) == 0 {
			t.Errorf("%q is not shown in:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "needs ipip") {
		t.Error("what passed or was skipped is shown")
	}
}

// The summary lists the tests that took longest, wherever they ran, with their subtests.
func TestSummaryShowsSlowTests(t *testing.T) {
	read := func(place, events string) *results {
		r := newResults(place)
		if err := r.read(strings.NewReader(events), io.Discard); err != nil {
			t.Fatal(err)
		}
		return r
	}
	var quick strings.Builder
	for i := range mostSlow {
		fmt.Fprintf(&quick, `{"Action":"pass","Package":"q","Test":"TestQuick%d","Elapsed":1.5}`+"\n", i)
	}
	here := read("here", `{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":70}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":75.4}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0.9}
{"Action":"fail","Package":"p","Elapsed":80}
`+quick.String())
	vm := read("VM", `{"Action":"pass","Package":"`+module+`/suite","Test":"TestC","Elapsed":300}`)
	lines := strings.Split(slowest([]*results{here, vm}), "\n")
	want := []string{
		"slow (VM):    5m0s   suite TestC",
		"slow (here):  1m15s  p TestA",
		"slow (here):  2s     q TestQuick0",
	}
	if !slices.Equal(lines[:3], want) {
		t.Errorf("%q, want %q", lines[:3], want)
	}
	if len(lines) != mostSlow+1 {
		t.Errorf("%d lines, want %d and an empty one", len(lines), mostSlow)
	}
}

func TestSummaryCountsASkippedTestOnce(t *testing.T) {
	r, _ := readEvents(t)
	for _, c := range []struct {
		verdict, want string
	}{
		{"pass", "\n3 passed, 2 failed, 0 skipped"},
		{"fail", "\n2 passed, 3 failed, 0 skipped"},
		{"skip", "\n2 passed, 2 failed, 1 skipped"},
		{"", "\n2 passed, 2 failed, 1 skipped"}, // not tried there
	} {
		vm := newResults("VM")
		if c.verdict != "" {
			vm.verdict[test{"p", "TestA/y"}] = c.verdict
		}
		if got := summary([]*results{r, vm}, time.Second); !strings.HasSuffix(got, c.want) {
			t.Errorf("%q in the VM: %s\nwant the end %q", c.verdict, got, c.want)
		}
	}
}

// ginkgo is what Ginkgo prints in a test binary. The dots stand for specs that passed.
const ginkgo = `......
------------------------------
• [FAILED] [0.7 seconds]
bridge pods, ip 4, [It] clusterip-spread on none [group:clusterip]
/src/suite/ginkgo_test.go:70

  [FAILED] Connections are spread evenly.
  1 of 4 rows do not hold
     probe                     want         got
  ✗  a1 -> clusterIP(of-1):80  Reply by b1  Silence
  In [It] at: /src/suite/ginkgo_test.go:111 @ 11/23/26 06:54:17.116
------------------------------
• [2.1 seconds]
bridge pods, ip 4, [It] clusterip-multiport on none [group:clusterip]
------------------------------
...

Summarizing 1 Failure:
  [FAIL] bridge pods, ip 4, [It] clusterip-spread on none [group:clusterip]
  /src/suite/ginkgo_test.go:111

Ran 9 of 119 Specs in 20.626 seconds
FAIL! -- 8 Passed | 1 Failed | 0 Pending | 110 Skipped
`

// eventsOf are those of a package whose only test fails with this output.
func eventsOf(t *testing.T, output string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	write := json.NewEncoder(&b)
	for line := range strings.Lines(output) {
		if err := write.Encode(event{Action: "output", Package: "suite", Test: "TestConformance", Output: line}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"TestConformance", ""} {
		if err := write.Encode(event{Action: "fail", Package: "suite", Test: name}); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

// Of a log that is long only the end can be read, so the summary repeats what failed and why, and then lists it.
func TestSummaryShowsWhyTestsFailed(t *testing.T) {
	here, _ := readEvents(t)
	noise := strings.Repeat("a line that explains nothing\n", 500)
	vm := newResults("VM")
	if err := vm.read(eventsOf(t, noise+ginkgo+noise+"the end\n"), io.Discard); err != nil {
		t.Fatal(err)
	}
	got := summary([]*results{here, vm}, time.Second)
	last := -1
	for _, want := range []string{
		"failed (here): p TestB\n        a_test.go:9: want 1, got 2\n",
		"broken (here): q ended without a verdict\n    panic: boom\n",
		"failed (VM): suite TestConformance\n      [FAIL] bridge pods, ip 4, [It] clusterip-spread on none",
		"    • [FAILED] [0.7 seconds]\n",
		"      [FAILED] Connections are spread evenly.\n",
		"      ✗  a1 -> clusterIP(of-1):80  Reply by b1  Silence\n",
		"    the end\n",
		"WHERE ",
		"failed (here): p TestB\nbroken (here): q ended without a verdict\nfailed (VM): suite TestConformance\n",
		"\n2 passed, 3 failed, 1 skipped",
	} {
		i := strings.Index(got, want)
		if i <= last {
			t.Errorf("%q is missing or in another place", want)
		}
		last = i
	}
	if lines := strings.Count(got, "\n"); lines > 60 || strings.Contains(got, "clusterip-multiport") || t.Failed() {
		t.Errorf("%d lines:\n%s", lines, got)
	}
}

func TestExcerptsAreShort(t *testing.T) {
	long := strings.Repeat("✗", mostWidth) + "\n"
	reports := strings.Repeat("• [FAILED] [1 second]\n"+long+"------------------------------\n", 100)
	names := strings.Repeat("  [FAIL] x\n", 100)
	for output, most := range map[string]int{strings.Repeat(long, 100): mostTail, reports + names: mostSpecs + shortTail} {
		got := excerpt(output)
		if lines := strings.Count(got, "\n"); lines != most || len(got) > lines*(mostWidth+20) || !utf8.ValidString(got) {
			t.Errorf("%d lines of %d bytes, want %d lines:\n%s", lines, len(got), most, got)
		}
	}
	var said []string
	for range 3 * mostKept {
		said = keep(said, "line\n")
	}
	if said = keep(said, "the end\n"); len(said) > mostKept || said[len(said)-1] != "the end\n" {
		t.Errorf("kept %d lines", len(said))
	}
}

// A group may fail by itself while all of its subtests pass, or beside failing ones.
func TestAFailingGroupCounts(t *testing.T) {
	r := newResults("here")
	r.verdict[test{"p", "TestA"}] = "fail"
	r.verdict[test{"p", "TestA/x"}] = "pass"
	if got := r.count(); got.failed == 0 {
		t.Errorf("counted %+v", got)
	}
	r.verdict[test{"p", "TestA/y"}] = "fail"
	if got := r.count(); got.failed != 1 {
		t.Errorf("counted %+v, want one failure", got)
	}
}

func TestPatternMatchesWhatWasSkipped(t *testing.T) {
	names := []string{"TestX/4/bridge/ipip", "TestX/dual/routed/ipip", "TestX/a.b"}
	levels := strings.Split(pattern(names), "/")
	for _, name := range names {
		for i, part := range strings.Split(name, "/") {
			if !regexp.MustCompile(levels[i]).MatchString(part) {
				t.Errorf("%s: level %d of %q does not match", name, i, levels)
			}
		}
	}
	if regexp.MustCompile(levels[3]).MatchString("vxlan") {
		t.Error("it matches what was not skipped")
	}
}

// Tests share a process if the same pattern selects their subtests, but the subtests of none are mixed up.
func TestSkippedTestsShareProcesses(t *testing.T) {
	for _, pkg := range []string{"p", "q"} {
		built[pkg] = binary{pkg: pkg}
	}
	runs, err := skippedTests(t.Context(), []test{
		{"p", "TestA"}, {"p", "TestB/ipip"}, {"p", "TestB/4/ipip"}, {"p", "TestC"}, {"p", "TestD/ipip"}, {"p", "TestE/ipip"},
		{"q", "TestF"},
	})
	var got []string
	for _, r := range runs {
		got = append(got, r.pkg+" "+r.args[1])
	}
	want := []string{"p ^(TestA|TestC)$", "p ^(TestB)$/^(ipip|4)$/^(ipip)$", "p ^(TestD|TestE)$/^(ipip)$", "q ^(TestF)$"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
}

// A file /dev/kvm proves nothing, so scripts/vm says what runs a kernel.
func TestEmulatedMachinesAreKnown(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("scripts", 0o755); err != nil {
		t.Fatal(err)
	}
	const vm = `#!/bin/sh
[ "$1 $3" = "--kernel --accelerator" ] || exit 1
case $2 in 6.1) echo tcg ;; 6.12) echo kvm ;; *) exit 1 ;; esac
`
	if err := os.WriteFile("scripts/vm", []byte(vm), 0o755); err != nil {
		t.Fatal(err)
	}
	for kernel, want := range map[string]bool{"6.1": true, "6.12": false, "none": false} {
		if got := emulated(t.Context(), kernel); got != want {
			t.Errorf("kernel %s: emulated is %t, want %t", kernel, got, want)
		}
	}
}

func TestEachRunHasOneKernel(t *testing.T) {
	runs := []binary{{pkg: "a"}, {pkg: "b"}, {pkg: "c"}}
	for kernel, want := range []string{"a c", "b"} {
		var got []string
		for _, r := range share(runs, kernel, 2) {
			got = append(got, r.pkg)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("kernel %d has %v, want %s", kernel, got, want)
		}
	}
}

// The script is run by a shell, and its output read back, as in the virtual machine.
func TestSectionsFromAScript(t *testing.T) {
	dir := t.TempDir()
	// Neither is a test binary: one does not know the flags, one does not exist.
	runs := []binary{
		{pkg: "p/one", dir: dir, path: "/bin/sh", args: nil},
		{pkg: "p/two", dir: dir, path: "/nonexistent"},
	}
	out, err := exec.Command("bash", "-c", script(runs)).Output()
	if err != nil {
		t.Fatal(err)
	}
	r := newResults("VM")
	if err := r.readSections(t.Context(), bytes.NewReader(out), io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(r.broken) != 2 || !strings.HasPrefix(r.broken[0], "p/one ended") ||
		!strings.HasPrefix(r.broken[1], "p/two ended with exit code 127") {
		t.Errorf("broken: %q", r.broken)
	}
	r = newResults("VM")
	lost := sectionStart + "p\n=== RUN   TestA\n"
	if err := r.readSections(t.Context(), strings.NewReader(lost), io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(r.broken) != 1 || !strings.Contains(r.broken[0], "p ended with the machine") {
		t.Errorf("broken: %q", r.broken)
	}
	r = newResults("VM")
	good := sectionStart + "p\n\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16PASS\n" + sectionEnd + "0\n"
	if err := r.readSections(t.Context(), strings.NewReader(good), io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := r.count(); got != (counts{passed: 1}) {
		t.Errorf("counted %+v", got)
	}
}

// A test that was skipped in a virtual machine, too, lacks something else than here.
func TestTheLastReasonCounts(t *testing.T) {
	a, b := test{"p", "TestA"}, test{"p", "TestB"}
	here, vm := newResults("here"), newResults("VM")
	here.why = map[test]string{a: "no ip_vs", b: "no sctp"}
	vm.why = map[test]string{a: "the table has a fixed size"}
	want := map[test]string{a: "the table has a fixed size", b: "no sctp"}
	if got := lastReasons([]test{a, b}, []*results{here, vm, newResults("another VM")}); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSkippedTestsAreGroupedByReason(t *testing.T) {
	a, b, c := test{"p", "TestA"}, test{"p", "TestB/x"}, test{"p", "TestC"}
	got := grouped([]test{a, b, c}, map[test]string{a: "no ipip", b: "no sctp", c: "no ipip"})
	want := "skipped everywhere: p TestA and 1 more: no ipip\nskipped everywhere: p TestB/x: no sctp\n"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestLinesAreLabelled(t *testing.T) {
	var out strings.Builder
	w := labelled{"one | ", &out}
	fmt.Fprint(w, "a\nb\n")
	fmt.Fprint(w, "")
	fmt.Fprint(w, "c")
	if got, want := out.String(), "one | a\none | b\none | c\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
