// SPDX-License-Identifier: Apache-2.0

package main

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

// pageOf returns the contents of a page of the catalogue: the scenarios, and the rows without scenarios, whose ids keep
// accepts.
func pageOf(title string, all []spec.Scenario, keep func(id string) bool) (report.Page, error) {
	page := report.Page{Title: title}
	groups, err := catalogue.Matching(keep)
	if err != nil {
		return page, err
	}
	byRow := catalogue.ByRow(groups, all)
	page.Groups = make([]report.PageGroup, len(groups))
	var tasks errgroup.Group
	for i, g := range groups {
		tasks.Go(func() (err error) { page.Groups[i], err = pageGroup(g, byRow, keep); return err })
	}
	err = tasks.Wait()
	page.Groups = slices.DeleteFunc(page.Groups, func(g report.PageGroup) bool { return len(g.Rows) == 0 })
	return page, err
}

func pageGroup(g catalogue.Group, byRow map[string][]spec.Scenario, keep func(string) bool) (report.PageGroup, error) {
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
			shown, err := pageScenario(s)
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

func pageScenario(s spec.Scenario) (report.PageScenario, error) {
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
