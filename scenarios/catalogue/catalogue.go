// SPDX-License-Identifier: Apache-2.0

// Package catalogue holds the list of behaviours that the scenarios prove: what an implementation of Service virtual
// IPs owes, where implementations differ on purpose, and which document or test says so.
package catalogue

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.yaml.in/yaml/v2"

	"github.com/viplab/viplab/suite/spec"
)

// File is the file of the rows in this module, for errors.
const File = "scenarios/catalogue/rows.yaml"

// Group is a family of behaviours.
type Group struct {
	// Name is how scenarios call it: "etp-local".
	Name  string      `yaml:"group"`
	Title string      `yaml:"title"`
	Rows  []Behaviour `yaml:"rows"`
}

// Behaviour is one row of the catalogue.
type Behaviour struct {
	// ID names it and, unless it has several, its scenario: "etp-local-source-preserved".
	ID   string `yaml:"id"`
	Part `yaml:",inline"`
	// Scenarios are the scenarios of a row that has several, by their ids. Such a row has no description.
	Scenarios map[string]Part `yaml:"scenarios"`
	// Behaviour says what is given, what happens and what must be the result.
	Behaviour string `yaml:"behaviour"`
	// Modes says where it holds and where implementations differ on purpose.
	Modes string `yaml:"modes"`
	// Source is where the behaviour is promised or tested.
	Source string `yaml:"source"`
	// Cases are its names in the list of cases for network policies (docs/netpol.md): "CONN-03, CONN-04".
	Cases string `yaml:"cases"`
	// Test is a package and a test that shows a behaviour without a cluster. Such a row has no scenario.
	Test string `yaml:"test"`
}

// Part is the scenario of a row, or one of several.
type Part struct {
	// Priority is by default that of the row.
	Priority spec.Priority `yaml:"priority"`
	// Description is what the scenario shows, in a sentence that a user would recognise.
	Description string `yaml:"description"`
	// Faults are the faults of proxiers with which the scenario must fail ("viplab prove").
	Faults []string `yaml:"faults"`
	// Immune says why no fault of a proxier can make the scenario fail. Such a scenario has no faults.
	Immune string `yaml:"immune"`
}

// Parts returns the scenarios of a row by their ids.
func (b Behaviour) Parts() map[string]Part {
	if b.Description == "" {
		return b.Scenarios
	}
	return map[string]Part{b.ID: b.Part}
}

//go:embed rows.yaml
var text []byte

// Groups returns all groups in the order of reports.
var Groups = sync.OnceValues(func() ([]Group, error) { return parse(text) })

func parse(text []byte) (out []Group, err error) {
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	return out, nil
}

// Describe fills in the group, priority, source and description of scenarios from their rows. The error names every
// scenario without a row, and every row of the groups that lists a scenario which is not among them, or none.
func Describe(groups []Group, scenarios []spec.Scenario) ([]spec.Scenario, error) {
	described, errs := descriptions(groups)
	out := slices.Clone(scenarios)
	written := map[string]bool{}
	for i := range out {
		s := &out[i]
		written[s.ID] = true
		d, ok := described[s.ID]
		if !ok {
			errs = append(errs, fmt.Errorf("scenario %s has no row in the catalogue: add one to its group in %s:\n"+stub,
				s.ID, File, s.ID))
		}
		s.Group, s.Priority, s.Source, s.Why = d.Group, d.Priority, d.Source, d.Why
	}
	for _, id := range slices.Sorted(maps.Keys(described)) {
		if !written[id] {
			errs = append(errs, fmt.Errorf("%s describes a scenario %s that does not exist: "+
				"write it below scenarios/ or remove it from the file", File, id))
		}
	}
	return out, errors.Join(errs...)
}

// descriptions returns what the rows say of each scenario, by its id.
func descriptions(groups []Group) (map[string]spec.Scenario, []error) {
	described, rows := map[string]spec.Scenario{}, map[string]bool{}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{File}, args...)...))
	}
	for _, g := range groups {
		for _, row := range g.Rows {
			if rows[row.ID] {
				bad("there are two rows %s", row.ID)
			}
			rows[row.ID] = true
			kinds := 0
			for _, has := range []bool{row.Description != "", len(row.Scenarios) > 0, row.Test != ""} {
				if has {
					kinds++
				}
			}
			if kinds != 1 {
				bad("row %s must have a description, scenarios or a test, and only one of them", row.ID)
			}
			for id, part := range row.Parts() {
				if _, twice := described[id]; twice {
					bad("two rows describe scenario %s", id)
				}
				if part.Priority == "" {
					part.Priority = row.Priority
				}
				described[id] = spec.Scenario{Group: g.Name, Priority: part.Priority, Source: row.Source, Why: part.Description}
			}
		}
	}
	return described, errs
}

// IDs returns the ids of all scenarios that the rows describe.
func IDs() ([]string, error) {
	groups, err := Groups()
	var ids []string
	for _, g := range groups {
		for _, r := range g.Rows {
			ids = slices.AppendSeq(ids, maps.Keys(r.Parts()))
		}
	}
	return ids, err
}

// stub is a row to fill in.
const stub = `  - id: %s
    priority: P1
    description: 'TODO: the promise in a sentence.'
    faults: [] # viplab prove --list
    behaviour: 'Given TODO; when TODO; then TODO.'
    modes: 'all'
    source: 'TODO: the page that promises it'
`

// ByRow groups scenarios by the ids of their rows. It leaves out scenarios that no row describes.
func ByRow(groups []Group, scenarios []spec.Scenario) map[string][]spec.Scenario {
	row := map[string]string{}
	for _, g := range groups {
		for _, r := range g.Rows {
			for id := range r.Parts() {
				row[id] = r.ID
			}
		}
	}
	out := map[string][]spec.Scenario{}
	for _, s := range scenarios {
		if id, ok := row[s.ID]; ok {
			out[id] = append(out[id], s)
		}
	}
	return out
}
