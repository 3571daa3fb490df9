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

	"github.com/chromedp/chromedp"

	"github.com/viplab/viplab/internal/browsertest"
	"github.com/viplab/viplab/internal/lab/trace"
	drawing "github.com/viplab/viplab/internal/lab/trace/page"
	"github.com/viplab/viplab/suite/spec"
)

// tracesOfAProxier is how many traces a run keeps of a proxier at most.
const tracesOfAProxier = 40

// big returns a report of 400 scenarios on 12 proxiers, and its page. Each result has 12 rows. One of 17 fails, one of
// 11 is skipped, one of 29 is known to fail.
func big(t *testing.T) (Report, Page) {
	t.Helper()
	text, err := os.ReadFile("../../lab/trace/testdata/denied.json")
	if err != nil {
		t.Fatal(err)
	}
	traces, err := trace.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	page := Page{Title: "400 scenarios on 12 proxiers"}
	var results []spec.Result
	for s := range 400 {
		id := fmt.Sprintf("scenario-number-%d", s)
		if s%20 == 0 {
			page.Groups = append(page.Groups, PageGroup{Name: fmt.Sprintf("group-%d", s/20), Title: fmt.Sprintf("Group %d", s/20)})
		}
		g := &page.Groups[s/20]
		why := fmt.Sprintf("Pods and processes on every node reach the ClusterIP number %d, whether or not their node has a pod behind it.", s)
		g.Rows = append(g.Rows, PageRow{ID: id, Priority: "P1", Behaviour: strings.Repeat(why+" ", 3), Modes: "all", Source: "the API",
			Scenarios: []PageScenario{{ID: id, Why: why, Kind: spec.Promise, Manifest: strings.Repeat("apiVersion: v1\nkind: Service\n", 80),
				Pods: map[string]string{"a1": "n1", "a2": "n2"}}}})
		for p := range 12 {
			results = append(results, bigResult(id, why, g.Name, s, p))
		}
	}
	r := New("v1.2.3", "6.18", "3 nodes, bridge pods, overlay vxlan, dual", results)
	r.Date, r.Command, r.WallMS = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), "viplab conform --proxier all", 61_000
	r.Settings.IP = "dual"
	traced := map[string]int{}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Verdict == spec.Fail && traced[x.Proxier] < tracesOfAProxier {
			traced[x.Proxier]++
			x.Probed[0].Trace = fmt.Sprintf("%s/%s/trace-1.json", x.Scenario, x.Proxier)
			x.traces = map[string]*trace.Traced{x.Probed[0].Trace: drawing.Drawn(traces[0])}
		}
	}
	return r, page
}

func bigResult(id, why, group string, s, p int) spec.Result {
	x := result(id, fmt.Sprintf("proxier-number-%d", p), spec.Pass)
	x.Scenario.Why, x.Scenario.Group, x.Scenario.Priority = why, group, spec.P1
	x.Took = time.Duration(20+(s*37+p*11)%900) * time.Millisecond
	switch n := s*12 + p; {
	case n%17 == 0:
		x.Verdict = spec.Fail
		x.Files = []string{id + "/failure.txt", id + "/packets.pcapng"}
	case n%11 == 0:
		x.Verdict, x.Cause, x.Reason = spec.Skip, spec.NotOffered, "not offered: "+x.Proxier+" lacks topology"
		return x
	case n%29 == 0:
		x.Verdict, x.Known = spec.Known, []string{"the proxier forgets a flow (https://example.com/issues/1)"}
	}
	for i := range 12 {
		row := spec.Probed{Row: "web", Family: "v4", Probe: fmt.Sprintf("a%d -> clusterIP(web):80/tcp v4", i), Want: "Reply by b2", Got: "Reply by b2",
			Holds: x.Verdict == spec.Pass || i > 2, Path: []spec.Hop{{Host: "a1", Node: "n1"}, {Host: "n1"}, {Host: "n2"}, {Host: "a2", Node: "n2"}}}
		if !row.Holds {
			row.Got = "Silence (fenced by 4 echoes in 0.43 ms, and then no answer within 5.006s)"
		}
		x.Probed = append(x.Probed, row)
	}
	if x.Verdict != spec.Pass {
		x.Reason = "3 of 12 rows do not hold\n" + strings.Repeat("✗  a1 -> clusterIP(web):80/tcp v4  Reply by b2  Silence\n", 12)
	}
	return x
}

// filters sets a filter and waits until the result is laid out, 20 times, and returns the times in milliseconds.
const filters = `[...Array(20).keys()].map(i => {
  const e = document.getElementById(%q), values = %s, began = performance.now();
  e.value = values[i %% values.length];
  e.dispatchEvent(new Event('input', { bubbles: true }));
  document.documentElement.offsetHeight;
  document.querySelector('#matrix').getBoundingClientRect();
  return performance.now() - began;
})`

// TestPageOf400By12 prints how fast the page of a big report is. It asserts what it shows, and no times.
func TestPageOf400By12(t *testing.T) {
	r, page := big(t)
	file := filepath.Join(t.TempDir(), "report.html")
	if err := r.WritePageFile(file, page); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, file, "#matrix")
	loaded := `performance.getEntriesByType('navigation')[0].loadEventEnd`
	const painted = `performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0] || 0`
	var first, whole []float64
	for range 5 {
		p.Run(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("#matrix")), chromedp.Poll[chromedp.Void](loaded+` > 0 && (`+painted+`) > 0`))
		first = append(first, browsertest.Ask[float64](p, painted))
		whole = append(whole, browsertest.Ask[float64](p, loaded))
	}
	slices.Sort(first)
	slices.Sort(whole)
	t.Logf("%.1f MB; first view after %.0f ms (median of %.0f), everything loaded after %.0f ms (%.0f)", float64(info.Size())/1e6, first[2], first, whole[2], whole)
	for _, x := range []struct{ id, values string }{
		{"verdict", "['fail', 'skip', '']"}, {"proxier", "['proxier-number-3', '']"}, {"text", "['number-1', 'number-39', '']"}, {"order", "['time', '']"},
	} {
		before := p.Worked()
		times := browsertest.Ask[[]float64](p, fmt.Sprintf(filters, x.id, x.values))
		slices.Sort(times)
		worked := (p.Worked() - before) / time.Duration(len(times))
		t.Logf("filter by %s: %.1f ms of processor; median %.0f ms of %.0f", x.id, worked.Seconds()*1000, times[10], times)
		browsertest.Ask[any](p, `choose(''); 0`)
	}
	if got := browsertest.Ask[string](p, `document.getElementById('count').textContent`); got != "400 of 400" {
		t.Errorf("it counts %q", got)
	}
	p.Run(chromedp.EmulateViewport(1440, 900))
	p.Shot("desktop")
	if got := browsertest.Ask[float64](p, `scrollTo(0, 5000); document.querySelector('#matrix thead').getBoundingClientRect().top`); got != 0 {
		t.Errorf("after scrolling, the heads of the columns are at %v", got)
	}
	p.Axe()
	p.Shot("desktop-scrolled")
}
