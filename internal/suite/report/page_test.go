// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/viplab/viplab/internal/browsertest"
	"github.com/viplab/viplab/suite/spec"
)

// browse opens the page of a report with two proxiers, three scenarios and a row without one, in a real browser. A file
// of the failure is beside the page.
func browse(t *testing.T) *browsertest.Page {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "out")
	for _, name := range []string{"b-two/p/n1 rules.txt", "../secret"} {
		if err := WriteFile(filepath.Join(folder, name), []byte("what "+name+" says")); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "report.html")
	if err := sample().WritePageFile(file, samplePage()); err != nil {
		t.Fatal(err)
	}
	return browsertest.Open(t, file, "#matrix")
}

func sample() Report {
	fails := result("b-two", "p", spec.Fail)
	fails.Reason, fails.Scenario.Why = "1 of 2 rows do not hold", "Because of b-two."
	fails.Files = []string{"b-two/p/n1 rules.txt", "b-two/p/gone.txt", "../secret"}
	fails.Probed = []spec.Probed{
		{Probe: "c1 -> web:80/tcp v4", Want: "reply by a2", Got: "reply by a2", Holds: true,
			Path: []spec.Hop{{Host: "c1", Node: "n1"}, {Host: "n1"}, {Host: "n2"}, {Host: "a2", Node: "n2"}}},
		{Probe: "client -> n3:80/tcp v4", Want: "silence", Got: "refused", Path: []spec.Hop{{Host: "client"}, {Host: "n3"}}},
	}
	skips := result("c-three", "q", spec.Skip)
	skips.Reason, skips.Missing, skips.Cause = "not offered: q lacks topology", []spec.Feature{spec.Topology}, spec.NotOffered
	known := result("b-two", "q", spec.Known)
	known.Known = []string{"forgets a flow, https://example.com/1"}
	known.Took = 3 * time.Second
	r := New("1.0", "6.1", "three nodes", []spec.Result{
		result("a-one", "p", spec.Pass), fails, result("c-three", "p", spec.Pass), result("a-one", "q", spec.Pass), known, skips,
	})
	r.Date, r.Command = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), "viplab conform --proxier 'p,q'"
	r.SetVersion("p", "v1.36")
	return r
}

func samplePage() Page {
	row := func(id, priority string) PageRow {
		return PageRow{ID: id, Priority: priority, Behaviour: "What " + id + " owes.", Modes: "all", Source: "somewhere",
			Scenarios: []PageScenario{
				{ID: id, Why: "Because of " + id + ".", Kind: spec.Promise, Manifest: "kind: Service", Pods: map[string]string{"c1": "n1", "a2": "n2"}},
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
	shownRows = `[...document.querySelectorAll('#matrix tr')].filter(r => r.offsetHeight && r.querySelector('th[scope=row]')).map(r => r.querySelector('.id').textContent).join(' ')`
	focused   = `document.activeElement.getAttribute('aria-label') || document.activeElement.id`
)

func TestPageFilters(t *testing.T) {
	p := browse(t)
	const all = "a-one b-two c-three d-four"
	for _, c := range []struct{ id, value, want string }{
		{"text", "because of c", "c-three"}, {"group", "first", "a-one b-two"}, {"priority", "P1", "c-three"},
		{"kind", "promise", "a-one b-two c-three"}, {"order", "time", "b-two a-one c-three d-four"},
		{"verdict", "fail", "b-two"}, {"verdict", "bad", "b-two"}, {"verdict", "known", "b-two"}, {"verdict", "skip", "c-three"},
		{"verdict", "not-offered", "c-three"}, {"verdict", "not-run", ""}, {"verdict", "none", "d-four"},
		{"proxier", "p", "a-one b-two c-three"},
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
	if got := browsertest.Ask[string](p, `document.getElementById('count').textContent`); got != "4 of 4" {
		t.Errorf("it counts %q", got)
	}
	if got := browsertest.Ask[string](p, `document.querySelector('h1').textContent`); got != "a report <of> two" {
		t.Errorf("the title is %q", got)
	}
}

func TestPageOpensAFailureByMouse(t *testing.T) {
	p := browse(t)
	p.Run(chromedp.Click(chromedp.CSS(`a[aria-label^="b-two on p: failed"]`)), detailOpen)
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
	p.Run(chromedp.Click(chromedp.CSS(`.probes tr:nth-child(2) button`)))
	if got := browsertest.Ask[string](p, way); got != "the way of the packet: c1 → n1 → n2 → a2" {
		t.Errorf("of the other row it draws %q", got)
	}
	p.Run(chromedp.Click(chromedp.CSS("#detail .close")), detailClosed)
	if got := browsertest.Ask[string](p, focused); got != "b-two on p: failed 20ms" {
		t.Errorf("after closing the focus is on %q", got)
	}
}

// What a person asks first: what was run, what failed, how much of it. Each sum shows its scenarios.
func TestPageBeginsWithFailuresAndSums(t *testing.T) {
	p := browse(t)
	const text = `document.querySelector(%q).innerText.replace(/\s+/g, ' ')`
	ask := func(element string) string { return browsertest.Ask[string](p, fmt.Sprintf(text, element)) }
	for element, want := range map[string]string{
		"#about":      "date 2026-11-24 12:00:00 UTC command viplab conform --proxier 'p,q' viplab 1.0 kernel 6.1 cluster three nodes",
		"#failures":   "1 failed in 1 scenario b-two Because of b-two. p: 1 of 2 rows do not hold",
		"#sums tbody": "p v1.36 fail 1 0 0 2 0 0 0 0 q partial 0 0 1 1 0 1 0 0",
		"#matrix tbody:nth-of-type(2) tr:nth-child(2) .why": "Because of a-one.",
	} {
		if got := strings.TrimSpace(ask(element)); got != want {
			t.Errorf("%s says %q, want %q", element, got, want)
		}
	}
	for link, want := range map[string]string{
		"#failures h2 a": "b-two", `#sums tr:nth-child(2) a.not-offered`: "c-three", `#sums tr:first-child a.pass`: "a-one c-three",
		`#matrix thead th:nth-child(3) a`: "a-one b-two c-three",
	} {
		if got := browsertest.Ask[string](p, fmt.Sprintf(`document.querySelector(%q).click(); new Promise(r => addEventListener('hashchange', () => r(%s), {once: true}))`,
			link, shownRows), browsertest.Await); got != want {
			t.Errorf("%s shows %q, want %q", link, got, want)
		}
	}
	// Only the column of the proxier is left.
	if got := browsertest.Ask[string](p, `choose('proxier=q'); [...document.querySelectorAll('#matrix thead th')].filter(e => e.offsetHeight).map(e => e.textContent).join(' ')`); got != "scenario q" {
		t.Errorf("of one proxier it shows the columns %q", got)
	}
	none := browsertest.Ask[string](p, `choose('verdict=fail&proxier=q'); document.getElementById('empty').innerText`)
	if none != "No scenario failed on q. Show all." {
		t.Errorf("without a failure it says %q", none)
	}
}

// Each detail has an address, and links to the files that are beside the page.
func TestPageOpensAnAddress(t *testing.T) {
	p := browse(t)
	title := `document.getElementById('detail-title').textContent`
	p.Run(chromedp.Navigate(browsertest.Ask[string](p, `location.href`)+"#b-two/p"), detailOpen)
	if got := browsertest.Ask[string](p, title); got != "b-two on p: failed" {
		t.Errorf("the address opens %q", got)
	}
	want := `n1 rules.txt=b-two/p/n1%20rules.txt gone.txt= ../secret=`
	if got := browsertest.Ask[string](p, `[...document.querySelectorAll('.files li')].map(li => li.textContent + '=' + (li.querySelector('a') ? li.querySelector('a').getAttribute('href') : '')).join(' ')`); got != want {
		t.Errorf("it links to %q, want %q", got, want)
	}
	p.Run(chromedp.Click(chromedp.CSS(".others a")), chromedp.Poll[chromedp.Void](`/on q/.test(`+title+`)`))
	if got := browsertest.Ask[string](p, `location.hash`); got != "#b-two/q" {
		t.Errorf("the address of the other result is %q", got)
	}
	p.Run(chromedp.KeyEvent(kb.Escape), detailClosed)
	p.Run(chromedp.Click(chromedp.CSS(`a.id[href="#a-one"]`)), detailOpen)
	if got := browsertest.Ask[string](p, title); got != "a-one" {
		t.Errorf("the link of a scenario opens %q", got)
	}
}

// The event of a closed dialog may come after the next address: it leaves that address alone.
func TestPageOpensTheNextAddressAtOnce(t *testing.T) {
	p := browse(t)
	p.Run(chromedp.Navigate(browsertest.Ask[string](p, `location.href`)+"#b-two/p"), detailOpen)
	browsertest.Ask[string](p, `document.getElementById('detail').close(), location.hash = '#a-one'`)
	p.Run(detailOpen)
	if got := browsertest.Ask[string](p, `location.hash`); got != "#a-one" {
		t.Errorf("the address is %q", got)
	}
}

// What is missing leaves no word of the script: a proxier alone, and the page of the catalogue, which has no results.
func TestPageSaysNothingOfWhatIsMissing(t *testing.T) {
	alone := New("1.0", "6.1", "three nodes", []spec.Result{result("a-one", "p", spec.Pass)})
	for name, x := range map[string]struct {
		report Report
		hash   string
	}{
		"a proxier alone":        {alone, "#a-one/p"},
		"a scenario without any": {alone, "#b-two"},
		"no results":             {Merge(), "#a-one"},
	} {
		file := filepath.Join(t.TempDir(), "report.html")
		if err := x.report.WritePageFile(file, samplePage()); err != nil {
			t.Fatal(err)
		}
		p := browsertest.Open(t, file, "#matrix")
		p.Run(chromedp.Navigate(browsertest.Ask[string](p, `location.href`)+x.hash), detailOpen)
		text := browsertest.Ask[string](p, `document.getElementById('detail').innerText`)
		for _, word := range []string{"false", "null", "undefined"} {
			if strings.Contains(text, word) {
				t.Errorf("%s: it says %q: %s", name, word, text)
			}
		}
	}
}

// The page says in words what the command says in short.
func TestPageNamesFamilies(t *testing.T) {
	for cluster, want := range map[string]string{
		"3 nodes, overlay vxlan, dual":                     "3 nodes, overlay vxlan, IPv4 and IPv6",
		"3 nodes, overlay vxlan (why), 4, enforcer calico": "3 nodes, overlay vxlan (why), IPv4 only, enforcer calico",
		"v1, 6 nodes, 6; 4 nodes, 4; 3 nodes, dual": "v1, 6 nodes, IPv6 only; 4 nodes, IPv4 only; " +
			"3 nodes, IPv4 and IPv6",
		"": "",
	} {
		var b strings.Builder
		r := Report{Cluster: cluster, Settings: Settings{IP: "4"}}
		if err := r.WritePage(&b, "", Page{}); err != nil {
			t.Fatal(err)
		}
		line := "<dt>cluster</dt> <dd>" + want + "</dd>"
		if cluster == "" {
			line = "<dt>IP families</dt> <dd>IPv4 only</dd>"
		}
		// The families stand there once.
		got := b.String()
		if !strings.Contains(got, line) || strings.Contains(got, "IP families") && cluster != "" {
			t.Errorf("no %q for %q", line, cluster)
		}
	}
}

// The browser's own searches and readers see words broken at letters where a column is too narrow for one.
func TestPageBreaksNoWordOfAFailure(t *testing.T) {
	p := browse(t)
	for _, width := range []int64{1440, 768, 390} {
		p.Run(chromedp.EmulateViewport(width, 844), chromedp.Click(chromedp.CSS(`a[aria-label^="b-two on p: failed"]`)), detailOpen)
		broken := browsertest.Ask[[]string](p, `[...document.querySelectorAll('.probes td, .probes th')].flatMap(cell => {
			const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), bad = [];
			while (text.nextNode()) for (const m of text.currentNode.data.matchAll(/\S+/g)) {
				const range = document.createRange();
				range.setStart(text.currentNode, m.index);
				range.setEnd(text.currentNode, m.index + m[0].length);
				if (new Set([...range.getClientRects()].map(r => r.top)).size > 1 && !/[-(:]/.test(m[0])) bad.push(m[0]);
			}
			return bad;
		})`)
		if len(broken) > 0 {
			t.Errorf("%d wide: it breaks %q", width, broken)
		}
		p.Run(chromedp.KeyEvent(kb.Escape), detailClosed)
	}
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
	p.Run(chromedp.Click(chromedp.CSS(`a[aria-label^="b-two on p: failed"]`)), detailOpen)
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
	p.Run(chromedp.Click(chromedp.CSS(`.probes tr:nth-child(2) button`)))
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
	if got := browsertest.Ask[string](p, focused); got != "b-two on q: failed as known 3s" {
		t.Errorf("after an arrow to the right the focus is on %q", got)
	}
	p.Run(chromedp.KeyEvent(kb.Enter), detailOpen, chromedp.KeyEvent(kb.Escape), detailClosed)
	if got := browsertest.Ask[string](p, focused); got != "b-two on q: failed as known 3s" {
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
					p.Run(chromedp.Click(chromedp.CSS(`a[aria-label^="b-two on p: failed"]`)), detailOpen)
				}
				if got := p.Contrast(); got < 4.5 {
					t.Errorf("%s, %d wide, dialog %t: the least contrast is %.2f", scheme, width, open, got)
				}
				p.Axe()
				p.Shot(fmt.Sprintf("%s-%d-%t", scheme, width, open))
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
