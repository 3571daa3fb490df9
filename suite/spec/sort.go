// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Sort puts scenarios in the order of reports (group, then id) and checks that each is well written and the ids are
// unique.
func Sort(scenarios []Scenario) ([]Scenario, error) {
	out := slices.Clone(scenarios)
	slices.SortFunc(out, func(a, b Scenario) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID))
	})
	var errs []error
	for i, s := range out {
		errs = append(errs, s.Validate())
		if i > 0 && out[i-1].ID == s.ID {
			errs = append(errs, fmt.Errorf("scenario %s: written twice", s.ID))
		}
	}
	return out, errors.Join(errs...)
}
