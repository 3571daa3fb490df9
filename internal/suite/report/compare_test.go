// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

func TestCompare(t *testing.T) {
	for _, x := range []struct {
		before, after spec.Verdict
		took          time.Duration // of the new one; the old one takes 20 ms
		want          ChangeKind
	}{
		{spec.Pass, spec.Fail, 0, Regression}, {spec.Skip, spec.Fail, 0, Regression}, {"", spec.Fail, 0, Regression},
		{spec.Known, spec.Broken, 0, Regression}, {spec.Fail, spec.Broken, 0, StillFails},
		{spec.Fail, spec.Pass, 0, Fixed}, {spec.Broken, spec.Known, 0, Fixed}, {spec.Pass, spec.Known, 0, KnownNow},
		{spec.Known, spec.Pass, 0, PassesNow}, {spec.Pass, spec.Skip, 0, NewSkip}, {spec.Fail, spec.Skip, 0, NewSkip},
		{spec.Pass, "", 0, Gone}, {spec.Fail, "", 0, Gone}, {"", spec.Pass, 0, Added}, {spec.Skip, spec.Known, 0, Added},
		{spec.Pass, spec.Pass, 1020 * time.Millisecond, Slower}, {spec.Pass, spec.Pass, time.Second, ""},
		{spec.Skip, "", 0, ""}, {"", spec.Skip, 0, ""}, {spec.Skip, spec.Skip, 0, ""}, {spec.Known, spec.Known, 0, ""},
	} {
		of := func(v spec.Verdict, took time.Duration) Report {
			r := []spec.Result{result("other", "p", spec.Pass), result("other", "q", spec.Pass)}
			if v != "" {
				one := result("one", "p", v)
				if took > 0 {
					one.Took = took
				}
				r = append(r, one)
			}
			return New("v", "k", "c", r)
		}
		c := Compare(of(x.before, 0), of(x.after, x.took), 2)
		var got ChangeKind
		if len(c.Changes) > 0 {
			got = c.Changes[0].Kind
		}
		if got != x.want || len(c.Changes) > 1 || c.ExitCode() == 1 != (x.want == Regression) {
			t.Errorf("%q, then %q: %+v, exit code %d; want %q", x.before, x.after, c.Changes, c.ExitCode(), x.want)
		}
	}
}

// Two releases of one program have different names.
func TestCompareTakesTwoSingleProxiersForOne(t *testing.T) {
	one := New("v", "k", "c", []spec.Result{result("one", "p-1", spec.Pass)})
	two := New("v", "k", "c", []spec.Result{result("one", "p-2", spec.Fail)})
	c := Compare(one, two, 2)
	if len(c.Changes) != 1 || c.Changes[0].Kind != Regression || c.Changes[0].Proxier != "p-2" {
		t.Errorf("%+v", c.Changes)
	}
	if got := c.Differences(); len(got) != 1 || got[0] != "proxier p-2, was p-1" {
		t.Errorf("%q", got)
	}
}

func TestComparisonIsPrintedRegressionsFirst(t *testing.T) {
	broke := result("z-broke", "p", spec.Fail)
	broke.Reason, broke.Scenario.Why = "1 of 2 rows <do> not hold\nand more", "Because."
	before := New("v", "k", "c", []spec.Result{result("a-fixed", "p", spec.Fail), result("m-same", "p", spec.Pass),
		result("z-broke", "p", spec.Pass)})
	after := New("v", "k", "c", []spec.Result{result("a-fixed", "p", spec.Pass), result("m-same", "p", spec.Pass), broke})
	c := Compare(before, after, 2)
	var b strings.Builder
	if err := c.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `✗ z-broke on p: regression: fail, was pass
  1 of 2 rows <do> not hold
  and more
✓ a-fixed on p: fixed: pass, was fail

1 regression, 1 fixed, 1 unchanged
`
	if b.String() != want {
		t.Errorf("it prints\n%s", b.String())
	}
	file := filepath.Join(t.TempDir(), "new", "page.html")
	if err := c.WritePage(file, ""); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	for _, text := range []string{"1 regression, 1 fixed", "z-broke", "Because.", "1 of 2 rows &lt;do&gt; not hold"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %q: %v", text, err)
		}
	}
}
