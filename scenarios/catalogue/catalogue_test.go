// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

func TestRowsAreWhole(t *testing.T) {
	groups, err := Groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Name == "" || g.Title == "" || len(g.Rows) == 0 {
			t.Errorf("group %q: title %q, %d rows", g.Name, g.Title, len(g.Rows))
		}
		for _, r := range g.Rows {
			if r.Behaviour == "" || r.Modes == "" || r.Source == "" ||
				(r.Priority != spec.P0 && r.Priority != spec.P1 && r.Priority != spec.P2) {
				t.Errorf("%s is not whole: %+v", r.ID, r)
			}
			if r.Test != "" && !exists(r.Test) {
				t.Errorf("%s: there is no test %s", r.ID, r.Test)
			}
		}
	}
}

// exists reports whether a package of this module has a test: "lab/cluster/store TestManifestErrors".
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

func TestErrorsNameWhatDoesNotAgree(t *testing.T) {
	groups := []Group{{Name: "g", Rows: []Behaviour{
		{ID: "g-one", Source: "a book", Part: Part{Priority: spec.P0, Description: "One."}},
		{ID: "g-two", Part: Part{Priority: spec.P1}, Scenarios: map[string]Part{
			"g-two": {Description: "Two."}, "g-two-more": {Priority: spec.P2, Description: "More."},
		}},
		{ID: "g-one", Test: "lab TestSomething"}, {ID: "g-none"},
	}}}
	described, err := Describe(groups, []spec.Scenario{{ID: "g-two-more"}, {ID: "g-one"}, {ID: "g-other"}})
	if len(described) != 3 || described[0].Group != "g" || described[0].Priority != spec.P2 ||
		described[0].Why != "More." || described[1].Source != "a book" || described[1].Priority != spec.P0 {
		t.Errorf("%+v", described)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"there are two rows g-one", "row g-none must have", "g-two that does not exist", "g-other has no row", File,
		"  - id: g-other\n    priority: P1\n",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
