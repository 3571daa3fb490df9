// SPDX-License-Identifier: Apache-2.0

// Package page makes the contents of a report's page from scenarios and the rows of the catalogue.
package page

import (
	"bytes"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/suite/replay"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

// Of returns the contents of a page of the catalogue: the scenarios, and the rows without scenarios, whose ids keep
// accepts. A scenario that no row of the catalogue has gets a row of its own.
func Of(title string, all []spec.Scenario, keep func(id string) bool) (report.Page, error) {
	page := report.Page{Title: title}
	groups, err := catalogue.Matching(keep)
	if err != nil {
		return page, err
	}
	byRow := catalogue.ByRow(groups, all)
	page.Groups = make([]report.PageGroup, len(groups))
	var tasks errgroup.Group
	for i, g := range groups {
		tasks.Go(func() (err error) { page.Groups[i], err = groupOf(g, byRow, keep); return err })
	}
	err = tasks.Wait()
	page.Groups = slices.DeleteFunc(page.Groups, func(g report.PageGroup) bool { return len(g.Rows) == 0 })
	if err != nil {
		return page, err
	}
	return page, addOwn(&page, all, keep)
}

// addOwn adds rows for the scenarios that no row of the catalogue has.
func addOwn(page *report.Page, all []spec.Scenario, keep func(id string) bool) error {
	shown := map[string]bool{}
	for _, g := range page.Groups {
		for _, r := range g.Rows {
			for _, s := range r.Scenarios {
				shown[s.ID] = true
			}
		}
	}
	for _, s := range all {
		if shown[s.ID] || !keep(s.ID) {
			continue
		}
		scenario, err := scenarioOf(s)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(page.Groups, func(g report.PageGroup) bool { return g.Name == s.Group })
		if i < 0 {
			i = len(page.Groups)
			page.Groups = append(page.Groups, report.PageGroup{Name: s.Group, Title: s.Group})
		}
		page.Groups[i].Rows = append(page.Groups[i].Rows, report.PageRow{
			ID: s.ID, Priority: string(s.Priority), Behaviour: s.Why, Source: s.Source,
			Scenarios: []report.PageScenario{scenario},
		})
	}
	return nil
}

func groupOf(g catalogue.Group, byRow map[string][]spec.Scenario, keep func(string) bool) (report.PageGroup, error) {
	out := report.PageGroup{Name: g.Name, Title: g.Title}
	for _, r := range g.Rows {
		row := report.PageRow{
			ID: r.ID, Priority: string(r.Priority), Behaviour: r.Behaviour, Modes: r.Modes, Source: r.Source,
			Test: r.Test, Scenarios: []report.PageScenario{},
		}
		for _, s := range byRow[r.ID] {
			if !keep(s.ID) {
				continue
			}
			shown, err := scenarioOf(s)
			if err != nil {
				return out, err
			}
			row.Scenarios = append(row.Scenarios, shown)
		}
		if len(row.Scenarios) > 0 || len(byRow[r.ID]) == 0 && keep(r.ID) {
			out.Rows = append(out.Rows, row)
		}
	}
	return out, nil
}

func scenarioOf(s spec.Scenario) (report.PageScenario, error) {
	var manifest bytes.Buffer
	err := replay.Write(&manifest, s)
	pods := map[string]string{}
	for _, o := range s.Given {
		if p, ok := o.(*corev1.Pod); ok {
			pods[p.Name] = p.Spec.NodeName
		}
	}
	kind, authorities := spec.KindOf(s.Needs)
	return report.PageScenario{
		ID: s.ID, Why: s.Why, Kind: kind, Authorities: authorities, Manifest: manifest.String(), Pods: pods,
	}, err
}
