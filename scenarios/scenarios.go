// SPDX-License-Identifier: Apache-2.0

// Package scenarios lists the behaviours of the catalogue that are written as scenarios.
package scenarios

import (
	"slices"
	"sync"

	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/scenarios/endpoints"
	"github.com/viplab/viplab/scenarios/external"
	"github.com/viplab/viplab/scenarios/mechanisms"
	"github.com/viplab/viplab/scenarios/networkpolicy"
	"github.com/viplab/viplab/scenarios/packets"
	"github.com/viplab/viplab/scenarios/services"
	"github.com/viplab/viplab/suite/spec"
)

// All returns all scenarios, each with the group, priority, source and description of its row in the catalogue, in the
// order of reports. They are built on the first call; the objects that they hold are shared by all callers and must not
// be changed. The error names every scenario that is not well written or does not agree with the catalogue.
func All() ([]spec.Scenario, error) {
	all, err := build()
	return slices.Clone(all), err
}

var build = sync.OnceValues(func() ([]spec.Scenario, error) {
	groups, err := catalogue.Groups()
	if err != nil {
		return nil, err
	}
	return described(groups, append(ofServices(), networkpolicy.Scenarios()...))
})

// Matching returns those of All whose ids keep accepts. It checks no others, and takes less time the fewer there are.
func Matching(keep func(id string) bool) ([]spec.Scenario, error) {
	groups, err := catalogue.Matching(keep)
	if err != nil {
		return nil, err
	}
	all := ofServices()
	if slices.ContainsFunc(groups, func(g catalogue.Group) bool { return g.Name == networkpolicy.Group }) {
		all = append(all, networkpolicy.Scenarios()...)
	}
	return described(groups, slices.DeleteFunc(all, func(s spec.Scenario) bool { return !keep(s.ID) }))
}

// ofServices returns the scenarios of all chapters but that of network policies, which takes the most time to make.
func ofServices() []spec.Scenario {
	return slices.Concat(
		services.Scenarios(), external.Scenarios(), endpoints.Scenarios(), packets.Scenarios(), mechanisms.Scenarios(),
	)
}

// described returns scenarios with what their rows say, checked and sorted.
func described(groups []catalogue.Group, scenarios []spec.Scenario) ([]spec.Scenario, error) {
	all, err := catalogue.Describe(groups, scenarios)
	if err != nil {
		return nil, err
	}
	return spec.Sort(all)
}
