// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/viplab/viplab/internal/browsertest"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// run returns a report of one proxier with a scenario for each verdict. An empty verdict leaves its scenario out.
func run(proxier, version string, day int, verdicts ...spec.Verdict) Run {
	var results []spec.Result
	group := report.PageGroup{Name: "first", Title: "The first"}
	for i, v := range verdicts {
		id := fmt.Sprintf("scenario-%d", i)
		if v == "" {
			continue
		}
		s := spec.Scenario{ID: id, Group: "first", Priority: spec.P0, Why: "Because of " + id + "."}
		results = append(results, spec.Result{Scenario: s, Proxier: proxier, Verdict: v, Took: time.Millisecond})
		group.Rows = append(group.Rows, report.PageRow{ID: id, Priority: "P0", Behaviour: s.Why,
			Scenarios: []report.PageScenario{{ID: id, Why: s.Why, Kind: spec.Promise}}})
	}
	r := report.New("1.0", "6.1", "three nodes", results)
	r.Date = time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC)
	r.SetVersion(proxier, version)
	return Run{Path: version, Report: r, Page: report.Page{Title: "report", Groups: []report.PageGroup{group}}}
}

// four returns three versions of one proxier, not in their order, and one of another.
func four() []Run {
	return []Run{
		run("p", "v3", 3, spec.Fail, spec.Pass, spec.Pass),
		run("p", "v1", 1, spec.Pass, spec.Fail, spec.Pass),
		run("p", "v2", 2, spec.Pass, spec.Pass, ""),
		run("q/../q", "v1", 1, spec.Pass),
	}
}

func TestRunsFollowOneAnotherByDate(t *testing.T) {
	dual, again := run("p", "v2", 4, spec.Pass), run("p", "v2", 4, spec.Pass)
	dual.Settings.IP = "dual"
	s, err := New(append(four(), dual, again))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range s.series {
		text := x.File + ":"
		for _, v := range x.Versions {
			text += " " + v.Label() + "@" + v.Name
			if v.Comparison != nil {
				text += fmt.Sprintf(" %d", len(v.Regressions()))
			}
		}
		got = append(got, text)
	}
	want := []string{
		"p.html: v2@2026-11-04T120000Z-2 0 v3@2026-11-03T120000Z 1 v2@2026-11-02T120000Z 0 v1@2026-11-01T120000Z",
		"q-..-q.html: v1@2026-11-01T120000Z-2",
		"p-ip-dual.html: v2@2026-11-04T120000Z",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAReportWithoutADateHasNoPlace(t *testing.T) {
	old, empty := run("p", "old", 1, spec.Pass), run("p", "empty", 1)
	old.Date = time.Time{}
	_, err := New([]Run{old, empty})
	if err == nil || !strings.Contains(err.Error(), "old: the report has no date") ||
		!strings.Contains(err.Error(), "empty: the report has no results") {
		t.Errorf("it says %v", err)
	}
}

const (
	shownRows = `[...document.querySelectorAll('#matrix tr[data-text]')].filter(r => r.offsetHeight).map(r => r.querySelector('.id').textContent).join(' ')`
	// cells are the signs of each line, with a star where the verdict changed.
	cells = `[...document.querySelectorAll('#matrix tr[data-text]')].map(r => [...r.cells].slice(1)
		.map(c => c.firstElementChild ? c.textContent + (c.firstElementChild.matches('.changed') ? '*' : '') : ' ').join('')).join('|')`
)

var detailOpen = chromedp.WaitVisible(chromedp.CSS("#detail[open] h2"))

// look checks a page as its readers see it: in light and dark, wide and narrow.
func look(t *testing.T, p *browsertest.Page, name string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.Media("screen", scheme)
		for _, width := range []int64{390, 1440} {
			p.Run(chromedp.EmulateViewport(width, 844))
			p.Axe()
			p.Shot(fmt.Sprintf("site-%s-%s-%d", name, scheme, width))
			if got := p.Contrast(); got < 4.5 {
				t.Errorf("%s, %s: the least contrast is %.2f", name, scheme, got)
			}
			if got := browsertest.Ask[int64](p, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("%s, %d wide: the page is %d wide", name, width, got)
			}
		}
	}
}

// The site works from a disk, by mouse and by keys, and loads nothing from elsewhere.
func TestPageOfASite(t *testing.T) {
	folder := t.TempDir()
	s, err := New(four())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(folder); err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, filepath.Join(folder, "index.html"), "#sums")
	look(t, p, "index")
	p.Run(chromedp.Click(chromedp.CSS(`#sums a[href="p.html"]`)), chromedp.WaitVisible(chromedp.CSS("#matrix")))
	look(t, p, "series")
	if got, want := browsertest.Ask[string](p, cells), "✗*✓✓|✓✓*✗|✓* ✓"; got != want {
		t.Errorf("the matrix is %q, want %q", got, want)
	}
	for by, want := range map[string]string{
		"verdict=bad": "scenario-0 scenario-1", "verdict=changed": "scenario-0 scenario-1 scenario-2",
		"text=of+scenario-2": "scenario-2", "verdict=changed&proxier=v2+2026-11-02+12:00:00": "scenario-1", "verdict=known": "",
	} {
		if got := browsertest.Ask[string](p, fmt.Sprintf(`choose(%q); %s`, by, shownRows)); got != want {
			t.Errorf("%s shows %q, want %q", by, got, want)
		}
	}
	browsertest.Ask[any](p, `choose(''); document.querySelector('.cell').focus(); 0`)
	p.Run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight),
		chromedp.KeyEvent(kb.Enter), detailOpen)
	at := browsertest.Ask[string](p, `document.getElementById('detail-title').textContent + ' ' + location.pathname`)
	if !strings.HasPrefix(at, "scenario-1 on p: failed ") || !strings.HasSuffix(at, "/reports/2026-11-01T120000Z/report.html") {
		t.Errorf("it opens %q", at)
	}
	p.Run(chromedp.NavigateBack(), chromedp.WaitVisible(chromedp.CSS("#failures h2 a")),
		chromedp.Click(chromedp.CSS("#failures h2 a")), chromedp.WaitVisible(chromedp.CSS(`li[id="scenario-0/p"]`)))
	look(t, p, "comparison")
	p.Run(chromedp.Click(chromedp.CSS(`li[id="scenario-0/p"] a`)), detailOpen)
	for _, asked := range p.Asked() {
		if !strings.HasPrefix(asked, "file://"+folder+"/") {
			t.Errorf("it asks for %s", asked)
		}
	}
}
