// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/viplab/viplab/internal/browsertest"
	"github.com/viplab/viplab/suite/spec"
)

// browse opens the page of a report with two proxiers, three scenarios and a row without one, in a real browser.
func browse(t *testing.T) *browsertest.Page {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := sample().WritePageFile(file, samplePage()); err != nil {
		t.Fatal(err)
	}
	return browsertest.Open(t, file, "#matrix")
}

func sample() Report {
	fails := result("b-two", "p", spec.Fail)
	fails.Reason = "1 of 2 rows do not hold"
	fails.Probed = []spec.Probed{
		{Probe: "c1 -> web:80/tcp v4", Want: "reply by a2", Got: "reply by a2", Holds: true,
			Path: []spec.Hop{{Host: "c1", Node: "n1"}, {Host: "n1"}, {Host: "n2"}, {Host: "a2", Node: "n2"}}},
		{Probe: "client -> n3:80/tcp v4", Want: "silence", Got: "refused", Path: []spec.Hop{{Host: "client"}, {Host: "n3"}}},
	}
	skips := result("c-three", "q", spec.Skip)
	skips.Reason, skips.Missing = "not offered: q lacks topology", []spec.Feature{spec.Topology}
	return New("1.0", "6.1", "three nodes", []spec.Result{
		result("a-one", "p", spec.Pass), fails, result("c-three", "p", spec.Pass),
		result("a-one", "q", spec.Pass), result("b-two", "q", spec.Pass), skips,
	})
}

func samplePage() Page {
	row := func(id, priority string) PageRow {
		return PageRow{ID: id, Priority: priority, Behaviour: "What " + id + " owes.", Modes: "all", Source: "somewhere",
			Scenarios: []PageScenario{
				{ID: id, Why: "Because of " + id + ".", Manifest: "kind: Service", Pods: map[string]string{"c1": "n1", "a2": "n2"}},
			}}
	}
	bare := PageRow{ID: "d-four", Priority: "P2", Behaviour: "Nobody wrote it."}
	return Page{Title: "a report <of> two", Groups: []PageGroup{
		{Name: "first", Title: "The first", Rows: []PageRow{row("a-one", "P0"), row("b-two", "P0")}},
		{Name: "second", Title: "The second", Rows: []PageRow{row("c-three", "P1"), bare}},
	}}
}

var (
	detailOpen   = chromedp.Poll[chromedp.Void](`document.getElementById('detail').open`)
	detailClosed = chromedp.Poll[chromedp.Void](`!document.getElementById('detail').open`)
)

const (
	shownRows = `[...document.querySelectorAll('#matrix tr')].filter(r => r.offsetHeight && r.querySelector('th[scope=row]')).map(r => r.cells[0].textContent).join(' ')`
	focused   = `document.activeElement.getAttribute('aria-label') || document.activeElement.id`
)

func TestPageFilters(t *testing.T) {
	p := browse(t)
	const all = "a-one b-two c-three d-four"
	for _, c := range []struct{ id, value, want string }{
		{"text", "because of c", "c-three"}, {"group", "first", "a-one b-two"}, {"priority", "P1", "c-three"},
		{"verdict", "fail", "b-two"}, {"verdict", "skip", "c-three"}, {"verdict", "none", "d-four"},
	} {
		set := func(value string) string {
			return fmt.Sprintf(`{const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event('input', {bubbles: true})); %s}`, c.id, value, shownRows)
		}
		if got := browsertest.Ask[string](p, set(c.value)); got != c.want {
			t.Errorf("%s %q shows %q, want %q", c.id, c.value, got, c.want)
		}
		if got := browsertest.Ask[string](p, set("")); got != all {
			t.Errorf("without a filter it shows %q, want %q", got, all)
		}
	}
	if got := browsertest.Ask[string](p, `document.getElementById('count').textContent`); got != "4 of 4 rows" {
		t.Errorf("it counts %q", got)
	}
	if got := browsertest.Ask[string](p, `document.querySelector('h1').textContent`); got != "a report <of> two" {
		t.Errorf("the title is %q", got)
	}
}

func TestPageOpensAFailureByMouse(t *testing.T) {
	p := browse(t)
	p.Run(chromedp.Click(chromedp.CSS(`button[aria-label^="b-two on p: failed"]`)), detailOpen)
	text := browsertest.Ask[string](p, `document.getElementById('detail').textContent`)
	for _, want := range []string{"Because of b-two.", "1 of 2 rows do not hold", "client -> n3:80/tcp v4", "silence",
		"refused", "kind: Service"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in what it opens: %s", want, text)
		}
	}
	way := `document.querySelector('#detail svg title').textContent`
	if got := browsertest.Ask[string](p, way); got != "the way of the packet: client → n3" {
		t.Errorf("of the row that does not hold it draws %q", got)
	}
	p.Run(chromedp.Click(chromedp.CSS(`.probes tr:first-child button`)))
	if got := browsertest.Ask[string](p, way); got != "the way of the packet: c1 → n1 → n2 → a2" {
		t.Errorf("of the other row it draws %q", got)
	}
	p.Run(chromedp.Click(chromedp.CSS("#detail .close")), detailClosed)
}

// A failed row with a trace shows it as "viplab trace -o html" does, where the packet ended.
func TestPageShowsTraces(t *testing.T) {
	folder := t.TempDir()
	text, err := os.ReadFile("../../lab/trace/testdata/denied.json")
	if err != nil {
		t.Fatal(err)
	}
	r := sample()
	i := slices.IndexFunc(r.Results, func(r Result) bool { return r.Verdict == spec.Fail })
	r.Results[i].Probed[1].Trace = "trace-1.json"
	if err := r.WriteJSON(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "trace-1.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err = Read(folder); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "report.html")
	if err := r.WritePageFile(file, samplePage()); err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, file, "#matrix")
	p.Run(chromedp.Click(chromedp.CSS(`button[aria-label^="b-two on p: failed"]`)), detailOpen)
	const said = `document.querySelector('#detail [aria-live]').textContent`
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "On n2, the rule ") {
		t.Errorf("it says %q", got)
	}
	p.Run(chromedp.KeyEvent(kb.Home))
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "Step 1 of ") {
		t.Errorf("after Home it says %q", got)
	}
	if got := p.Contrast(); got < 4.5 {
		t.Errorf("the least contrast is %.2f", got)
	}
	p.Axe()
	p.Run(chromedp.Click(chromedp.CSS(`.probes tr:first-child button`)))
	if got := browsertest.Ask[int](p, `document.querySelectorAll('#detail svg.topology').length`); got != 1 {
		t.Error("a row without a trace has no drawing")
	}
}

func TestPageWorksByKeyboard(t *testing.T) {
	p := browse(t)
	// A key that the page takes for itself writes no character; KeyEvent would send one all the same.
	slash := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "/", Code: "Slash"}
	if _, err := chromedp.Call(p.Context(), input.DispatchKeyEvent, slash); err != nil {
		t.Fatal(err)
	}
	if got := browsertest.Ask[string](p, focused); got != "text" {
		t.Errorf("after / the focus is on %q", got)
	}
	browsertest.Ask[any](p, `document.querySelector('.cell').focus(); 0`)
	p.Run(chromedp.KeyEvent(kb.ArrowDown))
	if got := browsertest.Ask[string](p, focused); got != "b-two on p: failed 20ms" {
		t.Errorf("after an arrow down the focus is on %q", got)
	}
	p.Run(chromedp.KeyEvent(kb.ArrowRight))
	if got := browsertest.Ask[string](p, focused); got != "b-two on q: passed 20ms" {
		t.Errorf("after an arrow to the right the focus is on %q", got)
	}
	p.Run(chromedp.KeyEvent(kb.Enter), detailOpen, chromedp.KeyEvent(kb.Escape), detailClosed)
	if got := browsertest.Ask[string](p, focused); got != "b-two on q: passed 20ms" {
		t.Errorf("after Escape the focus is on %q", got)
	}
}

// WCAG 2.1, 1.4.3: text has a contrast of at least 4.5.
func TestPageIsReadableInLightAndDarkAndOnAPhone(t *testing.T) {
	p := browse(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			p.Media("screen", scheme)
			p.Run(chromedp.EmulateViewport(width, 740))
			for _, open := range []bool{false, true} {
				if open {
					p.Run(chromedp.Click(chromedp.CSS(`button[aria-label^="b-two on p: failed"]`)), detailOpen)
				}
				if got := p.Contrast(); got < 4.5 {
					t.Errorf("%s, %d wide, dialog %t: the least contrast is %.2f", scheme, width, open, got)
				}
				p.Axe()
				if got := browsertest.Ask[int64](p, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s, %d wide, dialog %t: the page is %d wide", scheme, width, open, got)
				}
			}
			p.Run(chromedp.KeyEvent(kb.Escape), detailClosed)
		}
	}
	if browsertest.Ask[string](p, `getComputedStyle(document.body).backgroundColor`) == "rgb(255, 255, 255)" {
		t.Error("the dark page is white")
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	p := browse(t)
	asked := p.Asked()
	if len(asked) != 1 || !strings.HasSuffix(asked[0], "/report.html") {
		t.Errorf("it asks for %v", asked)
	}
}
