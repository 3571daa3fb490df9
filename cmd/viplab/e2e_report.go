// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// e2eProgress prints failures when they happen, and how far a run is.
type e2eProgress struct {
	*progress
	proxier spec.Proxier
	ended   int
	total   int
}

func newE2eProgress(r *e2eRun, p spec.Proxier, total int) *e2eProgress {
	return &e2eProgress{proxier: p, total: total,
		progress: &progress{w: r.stderr, terminal: isTerminal(r.stderr), began: time.Now(), what: "specs"}}
}

// listen is called with one result at a time.
func (p *e2eProgress) listen(r spec.Result) {
	p.ended++
	if r.Verdict == spec.Fail || r.Verdict == spec.Broken {
		p.clear()
		text := strings.ReplaceAll(r.Reason, "\n", "\n  ")
		fmt.Fprintf(p.w, "✗ %s on %s, after %.1f s\n  %s\n", r.Scenario.ID, r.Proxier, r.Took.Seconds(), text)
	}
	cell := engine.Cell{Scenario: r.Scenario, Proxier: p.proxier}
	p.progress.listen(engine.Event{Cell: &cell, Result: &r, Ended: p.ended, Total: p.total})
}

// report prints and writes the results, and returns the exit code.
func (r *e2eRun) report(results []spec.Result, began time.Time) (code int, err error) {
	slices.SortStableFunc(results, func(a, b spec.Result) int {
		return strings.Compare(a.Scenario.Group, b.Scenario.Group)
	})
	note := fmt.Sprintf("Kubernetes %s, %d nodes, %s pods, overlay %s, %s", r.suite.Version, r.flags.nodes,
		r.cluster.PodNetwork, r.cluster.Overlay, r.cluster.Stack)
	if r.enforcer != nil {
		note += ", enforcer " + r.enforcer.Name()
	}
	all := report.New(version(), kernelRelease(), note, results)
	stamp(&all, began, r.flags.cluster)
	all.Settings.Fault, all.Settings.Enforcer = string(r.flags.fault), r.flags.proxiers.enforcerName
	for _, p := range r.programs {
		all.SetVersion(p.Name(), r.versions[p.Name()])
		all.SetFeatures(p.Name(), p.Features())
	}
	style := report.Style{Colour: colours(r.stdout), Out: r.flags.out}
	if err := writeReport(all, r.page(results), r.flags.out, r.stdout, style, ""); err != nil {
		return 0, err
	}
	return all.ExitCode(), r.flags.expect.write(r.programs, results, r.stdout)
}

// page lists the specs by what they are about.
func (r *e2eRun) page(results []spec.Result) report.Page {
	page := report.Page{Title: "viplab: tests of Kubernetes " + r.suite.Version}
	shown := map[string]bool{}
	for _, x := range results {
		s := x.Scenario
		if shown[s.ID] {
			continue
		}
		shown[s.ID] = true
		row := report.PageRow{ID: s.ID, Priority: string(s.Priority), Behaviour: s.ID, Source: s.Source,
			Scenarios: []report.PageScenario{{ID: s.ID, Why: s.Why, Kind: spec.Promise, Authorities: []string{}}}}
		if last := len(page.Groups) - 1; last < 0 || page.Groups[last].Name != s.Group {
			page.Groups = append(page.Groups, report.PageGroup{Name: s.Group, Title: s.Group})
		}
		group := &page.Groups[len(page.Groups)-1]
		group.Rows = append(group.Rows, row)
	}
	return page
}
