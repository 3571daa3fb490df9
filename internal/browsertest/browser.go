// SPDX-License-Identifier: Apache-2.0

// Package browsertest opens pages in a headless Chromium.
package browsertest

import (
	"context"
	_ "embed" // contrast.js
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Page is an open page.
type Page struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	asked []string
}

// Open opens a file, and waits until an element is visible. It skips the test if there is no Chromium.
func Open(t *testing.T, file, element string) *Page {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("no Chromium to look at the page with: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &Page{t: t, ctx: ctx}
	p.Run(chromedp.Navigate("about:blank"))
	if err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			p.mu.Lock()
			p.asked = append(p.asked, e.Request.URL)
			p.mu.Unlock()
		}
	}); err != nil {
		t.Fatal(err)
	}
	p.Run(chromedp.Navigate("file://"+file), chromedp.WaitVisible(chromedp.CSS(element)))
	return p
}

// Run runs actions.
func (p *Page) Run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Context is that of the page, for calls of the DevTools protocol.
func (p *Page) Context() context.Context { return p.ctx }

// Asked returns the addresses of all requests of the page so far, its own among them.
func (p *Page) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Media makes the page believe that its reader prefers a scheme ("light" or "dark"), without motion. The medium is
// "screen" or "print".
func (p *Page) Media(medium, scheme string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: medium,
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		},
	}); err != nil {
		p.t.Fatal(err)
	}
}

// Ask evaluates JavaScript.
func Ask[T any](p *Page, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// Contrast returns the least ratio of the luminance of a text to that of what is behind it (WCAG 2.1, 1.4.3).
func (p *Page) Contrast() float64 {
	p.t.Helper()
	return Ask[float64](p, contrast)
}

//go:embed contrast.js
var contrast string

// AxeVariable names the variable of the environment with the path of axe.min.js, of the npm package axe-core.
const AxeVariable = "VIPLAB_AXE"

// Axe fails the test for each rule of axe-core that the page breaks seriously. Without AxeVariable it does nothing.
func (p *Page) Axe() {
	p.t.Helper()
	file := os.Getenv(AxeVariable)
	if file == "" {
		return
	}
	script, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	const violations = `axe.run().then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical')
	.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html).join('\n')))`
	Ask[any](p, string(script)+"; 0")
	wait := func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }
	broken, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](violations, wait))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, text := range broken {
		p.t.Errorf("axe: %s", text)
	}
}
