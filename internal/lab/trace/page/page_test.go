// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/viplab/viplab/internal/browsertest"
	"github.com/viplab/viplab/internal/lab/trace"
)

// read returns a trace that a lab has recorded: "iptables" and "nftables" are the life of a NodePort packet and of its
// answer, "denied" is a packet that a NetworkPolicy drops, and "refused" one to a closed port, with the ICMP error.
func read(t *testing.T, name string) *trace.Traced {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r trace.Traced
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func open(t *testing.T, write func(io.Writer) error) *browsertest.Page {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.html")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := write(out); err != nil {
		t.Fatal(err)
	}
	return browsertest.Open(t, file, ".tv-card")
}

func openTrace(t *testing.T, name string) *browsertest.Page {
	t.Helper()
	return open(t, func(w io.Writer) error { return Write(w, read(t, name)) })
}

func openBoth(t *testing.T) *browsertest.Page {
	t.Helper()
	return open(t, func(w io.Writer) error { return WriteBoth(w, read(t, "iptables"), read(t, "nftables")) })
}

const (
	said  = `document.querySelector('[aria-live]').textContent`
	after = `[...document.querySelectorAll('.tv-tuple tbody tr:last-child td')].map(c => c.firstChild.textContent).join(' ')`
	// marked are the fields that are shown as changed, and met the chains that are shown as passed.
	marked = `[...document.querySelectorAll('.tv-tuple mark')].map(m => m.textContent).join(' ')`
	met    = `[...document.querySelectorAll('.tv-map .tv-chain.tv-met title')].map(m => m.textContent.replace(/:.*/, '')).join(' ')`
)

// step returns the number of the step where a packet gets another destination, and the destination.
func translation(t *testing.T, r *trace.Traced) (number int, s trace.Step) {
	t.Helper()
	for i, s := range r.Walk.Steps {
		if s.After != nil && s.After.Dst != s.Before.Dst {
			return i, s
		}
	}
	t.Fatal("no translation")
	return 0, s
}

func TestPageWorksByKeyboard(t *testing.T) {
	r := read(t, "iptables")
	p := openTrace(t, "iptables")
	for _, c := range []struct{ key, want string }{
		{"", "Step 1 of "}, {kb.ArrowRight, "Step 2 of "}, {kb.ArrowRight, "Step 3 of "}, {kb.ArrowLeft, "Step 2 of "},
		{kb.ArrowLeft, "Step 1 of "}, {kb.ArrowLeft, "Step 1 of "}, {kb.End, "It has come to client."}, {kb.Home, "Step 1 of "},
		{"c", "state is now NEW"},
	} {
		if c.key != "" {
			p.Run(chromedp.KeyEvent(c.key))
		}
		if got := browsertest.Ask[string](p, said); !strings.Contains(got, c.want) {
			t.Errorf("after %q it says %q, want %q", c.key, got, c.want)
		}
	}
	p.Run(chromedp.KeyEvent(kb.Home))
	number, s := translation(t, r)
	for range number {
		p.Run(chromedp.KeyEvent(kb.ArrowRight))
	}
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "destinationIP is now "+s.After.Dst.Addr().String()) {
		t.Errorf("at the translation it says %q", got)
	}
	want := words(s.After.Dst.String()) + " NEW,DNAT"
	if got := browsertest.Ask[string](p, marked); got != want {
		t.Errorf("it marks %q, want %q", got, want)
	}
	want = words(s.After.Src.String()) + " " + words(s.After.Dst.String()) + " 0x4000 NEW,DNAT"
	if got := browsertest.Ask[string](p, after); got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	// The picture of the articles: PREROUTING, KUBE-SERVICES, KUBE-NODEPORTS, KUBE-EXT, KUBE-SVC, KUBE-SEP.
	got := browsertest.Ask[string](p, met)
	for _, chain := range []string{"PREROUTING KUBE-SERVICES KUBE-NODEPORTS KUBE-EXT-", " KUBE-MARK-MASQ", " KUBE-SVC-", " KUBE-SEP-"} {
		if !strings.Contains(got, chain) {
			t.Errorf("the map of the chains has %q, not %q", got, chain)
		}
	}
}

// words parts an address and its port.
func words(address string) string { return strings.Replace(address, ":", " ", 1) }

func TestPagePlays(t *testing.T) {
	p := openTrace(t, "denied")
	p.Run(chromedp.KeyEvent(" "), chromedp.Poll[chromedp.Void](`document.querySelector('.tv-count').textContent.startsWith('3 ')`),
		chromedp.Click(chromedp.CSS(`button[aria-label^=pause]`)))
	if n := browsertest.Ask[int](p, `document.querySelectorAll('button[aria-label^=play]').length`); n != 1 {
		t.Error("it goes on")
	}
	p.Run(chromedp.Click(chromedp.CSS(`button[aria-label^="last step"]`)))
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "On n2, the rule \"log prefix") ||
		!strings.Contains(got, "The NetworkPolicy default/nothing-in isolates default/guarded") {
		t.Errorf("at the end it says %q", got)
	}
	if n := browsertest.Ask[int](p, `document.querySelectorAll('.tv-way.tv-bad, .tv-map .tv-action.tv-drop').length`); n != 2 {
		t.Errorf("%d of 2 signs of the drop", n)
	}
	p.Run(chromedp.Click(chromedp.CSS(`#steps li:nth-child(2) button`)))
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "Step 1 of") && !strings.Contains(got, "Step 3 of") {
		t.Errorf("after a click on a step it says %q", got)
	}
}

// An ICMP error quotes the packet, as connection tracking translates it.
func TestPageShowsWhatAnErrorQuotes(t *testing.T) {
	p := openTrace(t, "refused")
	r := read(t, "refused")
	number := len(r.Walk.Steps)
	const quoted = `{
	const range = document.querySelector('.tv-track input');
	[...Array(Number(range.max) + 1).keys()].map(i => {
		range.value = i;
		range.dispatchEvent(new Event('input'));
		return (document.querySelector('.tv-tuple .tv-quoted') || {}).textContent || '';
	});
}`
	all := browsertest.Ask[[]string](p, quoted)
	if number += len(r.Errors[0].Steps); len(all) != number {
		t.Fatalf("%d steps, want %d", len(all), number)
	}
	said := slices.Compact(all)
	last := r.Walk.Last()
	want := []string{
		"", "it quotes " + last.Src.String() + " → " + last.Dst.String(),
		"it quotes " + r.Walk.First.Src.String() + " → " + r.Walk.First.Dst.String(),
	}
	if len(said) < 3 || said[0] != want[0] || said[1] != want[1] || said[len(said)-1] != want[2] {
		t.Errorf("it quotes %q, want first and last %q", said, want)
	}
}

func TestPageOfASeries(t *testing.T) {
	p := open(t, func(w io.Writer) error { return Write(w, read(t, "iptables"), read(t, "denied")) })
	count := `document.querySelector('.tv-count').textContent`
	first := browsertest.Ask[string](p, count)
	p.Run(chromedp.KeyEvent(kb.End))
	choose := `{const s = document.getElementById('request'); s.value = 1; s.dispatchEvent(new Event('change'));}`
	second := browsertest.Ask[string](p, choose+count)
	denied := read(t, "denied")
	if want := fmt.Sprintf("1 / %d", len(denied.Walk.Steps)); second != want || first == second {
		t.Errorf("it shows %q, and then %q, want %q", first, second, want)
	}
	p.Run(chromedp.KeyEvent(kb.ArrowRight))
	if got := browsertest.Ask[string](p, count); !strings.HasPrefix(got, "2 / ") {
		t.Errorf("after an arrow it shows %q", got)
	}
	if n := browsertest.Ask[int](p, `document.querySelectorAll('#steps .tv-all').length`); n != 1 {
		t.Errorf("it lists the steps of %d requests", n)
	}
	p.Axe()
}

// A packet that nothing has seen has a page, too.
func TestPageWithoutSteps(t *testing.T) {
	r := read(t, "denied")
	r.Walk.Steps = nil
	r.Walk.End = &trace.End{Outcome: trace.Lost, Place: "default/c1", Cause: trace.CauseNeigh, Text: "Nobody has the address."}
	p := open(t, func(w io.Writer) error { return Write(w, r) })
	if got := browsertest.Ask[string](p, said); !strings.Contains(got, "Step 1 of 1.") || !strings.Contains(got, "Nobody has the address.") {
		t.Errorf("it says %q", got)
	}
}

func TestPageOfTwo(t *testing.T) {
	p := openBoth(t)
	if got := browsertest.Ask[string](p, `[...document.querySelectorAll('.tv-column h2')].map(h => h.textContent).join(', ')`); got != "iptables and policy-nftables, nftables and policy-nftables" {
		t.Errorf("the titles are %q", got)
	}
	for range 60 {
		p.Run(chromedp.KeyEvent("c"))
		if browsertest.Ask[bool](p, `[...document.querySelectorAll('.tv-tuple')].every(t => [...t.querySelectorAll('mark')].some(m => m.textContent === '8080'))`) {
			return // both translations side by side
		}
	}
	t.Error("at no step both translate the destination")
}

// WCAG 2.1, 1.4.3: text has a contrast of at least 4.5.
func TestPageIsReadable(t *testing.T) {
	for name, p := range map[string]*browsertest.Page{"one": openTrace(t, "iptables"), "two": openBoth(t)} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				p.Media("screen", scheme)
				p.Run(chromedp.EmulateViewport(width, 844), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent("c"))
				if got := p.Contrast(); got < 4.5 {
					t.Errorf("%s, %s, %d wide: the least contrast is %.2f", name, scheme, width, got)
				}
				if got := browsertest.Ask[int64](p, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s, %s, %d wide: the page is %d wide", name, scheme, width, got)
				}
				p.Axe()
			}
		}
		const behind = `getComputedStyle(document.body).backgroundColor`
		dark := browsertest.Ask[string](p, behind)
		p.Run(chromedp.Click(chromedp.CSS("#theme")))
		if light := browsertest.Ask[string](p, behind); light != "rgb(255, 255, 255)" || light == dark {
			t.Errorf("%s: dark is %s, and after a click on the button %s", name, dark, light)
		}
		if asked := p.Asked(); len(asked) != 1 {
			t.Errorf("%s: it asks for %v", name, asked)
		}
	}
}

func TestPageIsPrinted(t *testing.T) {
	p := openTrace(t, "iptables")
	p.Media("print", "dark")
	visible := `[...document.querySelectorAll('.tv-controls, .tv-card, #steps li, #steps .tv-chains')].filter(e => e.getBoundingClientRect().height).map(e => e.className.baseVal ?? e.className)`
	controls := browsertest.Ask[int](p, visible+`.filter(c => /controls|card/.test(c)).length`)
	steps := browsertest.Ask[int](p, `[...document.querySelectorAll('#steps li')].filter(e => e.getBoundingClientRect().height).length`)
	r := read(t, "iptables")
	if want := len(r.Walk.Steps) + len(r.Reply.Steps) + len(r.Flows); controls != 0 || steps != want {
		t.Errorf("%d controls on paper, and %d of %d lines", controls, steps, want)
	}
	_, dnat := translation(t, r)
	line := browsertest.Ask[string](p, `[...document.querySelectorAll('#steps .tv-row')].map(r => r.textContent).find(t => t.includes('| 8080 |'))`)
	if want := "| " + strings.Join(strings.FieldsFunc(dnat.After.Line(nil), func(r rune) bool { return r == '|' || r == ' ' }), " | ") + " | "; line != want {
		t.Errorf("the line after the translation is %q, want %q", line, want)
	}
	if n := browsertest.Ask[int](p, `[...document.querySelectorAll('#steps .tv-chain')].filter(c => /KUBE-SEP/.test(c.textContent) && c.matches('.tv-met')).length`); n != 1 {
		t.Errorf("the packet is at %d endpoints", n)
	}
	if got := p.Contrast(); got < 4.5 {
		t.Errorf("the least contrast on paper is %.2f", got)
	}
}
