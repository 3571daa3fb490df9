// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Sort returns scenarios in the order of reports (group, then id). It returns an error unless each is well-formed, ids
// are unique, and no two scenarios choose the same NodePort or external IP.
func Sort(scenarios []Scenario) ([]Scenario, error) {
	out := slices.Clone(scenarios)
	slices.SortFunc(out, func(a, b Scenario) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID))
	})
	var errs []error
	ids, owners := map[string]bool{}, map[string]string{}
	for _, s := range out {
		errs = append(errs, s.Validate())
		if ids[s.ID] {
			errs = append(errs, fmt.Errorf("scenario %s: written twice", s.ID))
			continue
		}
		ids[s.ID] = true
		for _, choice := range s.choices() {
			if owner := owners[choice]; owner != "" && owner != s.ID {
				errs = append(errs, fmt.Errorf("scenarios %s and %s both choose %s", owner, s.ID, choice))
			}
			owners[choice] = s.ID
		}
	}
	return out, errors.Join(errs...)
}

// choices returns the shared resources that the scenario chooses itself: "NodePort 30040".
func (s Scenario) choices() (all []string) {
	for _, port := range s.NodePorts {
		all = append(all, fmt.Sprintf("NodePort %d", port))
	}
	if s.Cluster != nil && !s.Cluster.Shared {
		return all
	}
	for _, o := range s.Given {
		if service, ok := o.(*corev1.Service); ok {
			for _, ip := range service.Spec.ExternalIPs {
				all = append(all, "external IP "+ip)
			}
		}
	}
	return all
}
