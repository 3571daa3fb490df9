// SPDX-License-Identifier: Apache-2.0

package catalogue_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

func TestRowsAreWhole(t *testing.T) {
	groups, err := catalogue.Groups()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, g := range groups {
		if g.Name == "" || g.Title == "" || len(g.Rows) == 0 {
			t.Errorf("group %q: title %q, %d rows", g.Name, g.Title, len(g.Rows))
		}
		for _, r := range g.Rows {
			if ids[r.ID] {
				t.Errorf("%s stands twice", r.ID)
			}
			ids[r.ID] = true
			if r.Behaviour == "" || r.Modes == "" || r.Source == "" ||
				(r.Priority != spec.P0 && r.Priority != spec.P1 && r.Priority != spec.P2) {
				t.Errorf("%s is not whole: %+v", r.ID, r)
			}
		}
	}
}

func TestEveryRowHasAScenario(t *testing.T) {
	byRow, err := catalogue.ByRow(scenarios.All())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := catalogue.Groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, r := range g.Rows {
			if (len(byRow[r.ID]) == 0) == (r.Test == "") {
				t.Errorf("%s has %d scenarios, and the test %q", r.ID, len(byRow[r.ID]), r.Test)
			}
			if r.Test != "" && !exists(r.Test) {
				t.Errorf("%s: there is no test %s", r.ID, r.Test)
			}
		}
	}
}

// exists says whether a package of this module has a test: "lab/cluster/store TestManifestErrors".
func exists(test string) bool {
	folder, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// A scenario may say more than its row, never something else.
func TestScenariosAgreeWithTheirRows(t *testing.T) {
	for _, s := range scenarios.All() {
		group, row, err := catalogue.Of(s.ID)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Group != group.Name {
			t.Errorf("%s: its group is %s, its row's %s", s.ID, s.Group, group.Name)
		}
		// A part of a row may matter less than the whole.
		if s.ID == row.ID && s.Priority != row.Priority {
			t.Errorf("%s: its priority is %s, its row's %s", s.ID, s.Priority, row.Priority)
		}
	}
}

func TestOfTakesTheLongestRow(t *testing.T) {
	for id, want := range map[string]string{
		"rs-ipvs-scheduler":        "rs-ipvs-scheduler",
		"rs-ipvs-scheduler-wrr":    "rs-ipvs-scheduler",
		"etp-local-imbalance":      "etp-local-imbalance",
		"sec-localnet-guard-extra": "sec-localnet-guard",
	} {
		if _, row, err := catalogue.Of(id); err != nil || row.ID != want {
			t.Errorf("%s belongs to %q (%v), want %s", id, row.ID, err, want)
		}
	}
	if _, _, err := catalogue.Of("clusterip"); err == nil || !strings.Contains(err.Error(), "clusterip is no row") {
		t.Errorf("a name that is no row's: %v", err)
	}
}
