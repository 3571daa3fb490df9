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
	all, err := catalogue.Describe(slices.Concat(
		services.Scenarios(), external.Scenarios(), endpoints.Scenarios(), packets.Scenarios(), mechanisms.Scenarios(),
		networkpolicy.Scenarios(),
	))
	if err != nil {
		return nil, err
	}
	return spec.Sort(all)
})
