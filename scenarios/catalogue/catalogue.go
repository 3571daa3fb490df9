// SPDX-License-Identifier: Apache-2.0

// Package catalogue holds the list of behaviours that the scenarios prove: what an implementation of Service virtual
// IPs owes, where implementations differ on purpose, and who says so.
package catalogue

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/suite/spec"
)

// Group is a family of behaviours.
type Group struct {
	// Name is how scenarios call it: "etp-local".
	Name  string      `json:"group"`
	Title string      `json:"title"`
	Rows  []Behaviour `json:"rows"`
}

// Behaviour is one row of the catalogue.
type Behaviour struct {
	// ID names it and its scenario: "etp-local-source-preserved".
	ID       string        `json:"id"`
	Priority spec.Priority `json:"priority"`
	// Behaviour says what is given, what happens and what must come of it.
	Behaviour string `json:"behaviour"`
	// Modes says where it holds and where implementations differ on purpose.
	Modes string `json:"modes"`
	// Source is where the behaviour is promised or tested.
	Source string `json:"source"`
	// Cases are its names in the list of cases for network policies (docs/netpol.md): "CONN-03, CONN-04".
	Cases string `json:"cases"`
	// Test is a package and a test that shows it, where no cluster is needed to, or another command has one. Such a row
	// has no scenario.
	Test string `json:"test"`
}

//go:embed rows.yaml
var text []byte

// Groups are all groups in the order of reports.
func Groups() ([]Group, error) { return groups() }

var groups = sync.OnceValues(func() (out []Group, err error) {
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return nil, fmt.Errorf("the catalogue's rows: %w", err)
	}
	return out, nil
})

// Of is the group and the row that a scenario belongs to: the row with its id, or, where a row takes several scenarios,
// the one whose id theirs begin with.
func Of(scenario string) (Group, Behaviour, error) {
	all, err := Groups()
	if err != nil {
		return Group{}, Behaviour{}, err
	}
	var group Group
	var row Behaviour
	for _, g := range all {
		for _, r := range g.Rows {
			if (scenario == r.ID || strings.HasPrefix(scenario, r.ID+"-")) && len(r.ID) > len(row.ID) {
				group, row = g, r
			}
		}
	}
	if row.ID == "" {
		return Group{}, Behaviour{}, fmt.Errorf("%s is no row of the catalogue", scenario)
	}
	return group, row, nil
}

// ByRow sorts scenarios to the ids of their rows. A row without a scenario has no entry.
func ByRow(scenarios []spec.Scenario) (map[string][]spec.Scenario, error) {
	out := map[string][]spec.Scenario{}
	for _, s := range scenarios {
		_, row, err := Of(s.ID)
		if err != nil {
			return nil, err
		}
		out[row.ID] = append(out[row.ID], s)
	}
	return out, nil
}
