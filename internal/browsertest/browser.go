// SPDX-License-Identifier: Apache-2.0

// Package browsertest opens pages in a headless Chromium.
package browsertest

import (
	"context"
	_ "embed" // contrast.js
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
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
	p := &Page{t: t}
	for try := 1; ; try++ { // Chromium crashes at its start now and then, before it has any page
		err := p.start()
		if err == nil {
			break
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Logf("Chromium is started again: %v", err)
	}
	p.Run(chromedp.Navigate("file://"+file), chromedp.WaitVisible(chromedp.CSS(element)))
	return p
}

// start starts Chromium with an empty page.
func (p *Page) start() error {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(p.t.Context(), options...)
	p.t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	p.t.Cleanup(cancel)
	p.ctx, cancel = chromedp.NewContext(ctx)
	p.t.Cleanup(cancel)
	if err := chromedp.Do(p.ctx, chromedp.Navigate("about:blank")); err != nil {
		return err
	}
	return chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			p.mu.Lock()
			p.asked = append(p.asked, e.Request.URL)
			p.mu.Unlock()
		}
	})
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

// Await makes Ask return what the promise that the script returns is resolved with.
func Await(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }

// Ask evaluates JavaScript.
func Ask[T any](p *Page, script string, options ...func(*runtime.EvaluateParams)) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script, options...))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// Worked returns how much processor time the main thread of the page has used, whatever else the machine does.
func (p *Page) Worked() time.Duration {
	p.t.Helper()
	threads := performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}
	if _, err := chromedp.Call(p.ctx, performance.Enable, threads); err != nil {
		p.t.Fatal(err)
	}
	metrics, err := chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range metrics.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	p.t.Fatal("Chromium does not say how long its tasks took")
	return 0
}

// Contrast returns the least ratio of the luminance of a text to that of what is behind it (WCAG 2.1, 1.4.3).
func (p *Page) Contrast() float64 {
	p.t.Helper()
	return Ask[float64](p, contrast)
}

//go:embed contrast.js
var contrast string

// ShotsVariable names the variable of the environment with the folder for pictures of pages.
const ShotsVariable = "VIPLAB_SHOTS"

// Shot takes a picture of what is seen of the page. Without ShotsVariable it does nothing.
func (p *Page) Shot(name string) {
	p.t.Helper()
	folder := os.Getenv(ShotsVariable)
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

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
	for _, text := range Ask[[]string](p, violations, Await) {
		p.t.Errorf("axe: %s", text)
	}
}
