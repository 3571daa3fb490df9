// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// page returns the contents of the page of a run: its cases, or that they were generated.
func (r *netpolRun) page(results []spec.Result) (report.Page, error) {
	group := report.PageGroup{Name: "networkpolicy", Title: "Network policies"}
	if r.generated() {
		s := results[0].Scenario
		group.Rows = []report.PageRow{pageCase(s.ID, s.Priority, s.Why, "", "")}
	} else {
		for _, c := range r.cases {
			manifest, err := manifestOf(c)
			if err != nil {
				return report.Page{}, fmt.Errorf("case %s: %w", c.ID, err)
			}
			row := pageCase(c.ID, c.Priority, c.Given, c.Why, manifest)
			row.Source = c.Source
			group.Rows = append(group.Rows, row)
		}
	}
	return report.Page{Title: "viplab: network policies", Groups: []report.PageGroup{group}}, nil
}

// pageCase returns a row with its one scenario, which is the case itself.
func pageCase(id string, p spec.Priority, given, why, manifest string) report.PageRow {
	return report.PageRow{
		ID: id, Priority: string(p), Behaviour: why,
		Scenarios: []report.PageScenario{{ID: id, Why: given, Kind: spec.Promise, Manifest: manifest}},
	}
}

// manifestOf returns the policies of a case, first in words, and then for kubectl.
func manifestOf(c netpol.Case) (string, error) {
	var words, b bytes.Buffer
	if err := netpol.Describe(&words, c); err != nil {
		return "", err
	}
	for line := range strings.Lines(words.String()) {
		fmt.Fprintf(&b, "# %s", line)
	}
	var objects []store.Object
	for _, p := range c.Policies {
		objects = append(objects, p)
	}
	err := manifest.Encode(&b, objects...)
	return b.String(), err
}
