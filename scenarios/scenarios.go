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

// chapters are the packages of scenarios, each with the groups of the catalogue that its scenarios belong to.
var chapters = []struct {
	scenarios func() []spec.Scenario
	groups    []string
}{
	{services.Scenarios, []string{
		"clusterip", "nodeport", "session-affinity", "hairpin", "service-changes", "headless/dns", "ipv6/dual-stack",
		"port-binding", "scale",
	}},
	{external.Scenarios, []string{"loadbalancer", "externalips", "etp-local", "healthcheck-nodeport", "source-ranges"}},
	{endpoints.Scenarios, []string{"itp-local", "endpoints-lifecycle", "topology/traffic-distribution", "no-endpoints"}},
	{packets.Scenarios, []string{"conntrack", "icmp-errors", "udp", "sctp", "security", "node-egress-masquerade"}},
	{mechanisms.Scenarios, []string{"ruleset-shape", "restart/upgrade", "networkpolicy"}},
	{networkpolicy.Scenarios, []string{"networkpolicy"}},
}

// All returns all scenarios, each with the group, priority, source and description of its row in the catalogue, in the
// order of reports. They are built on the first call; the objects that they hold are shared by all callers and must not
// be changed. The error lists every scenario that is not well-formed or does not agree with the catalogue.
func All() ([]spec.Scenario, error) {
	all, err := build()
	return slices.Clone(all), err
}

var build = sync.OnceValues(func() ([]spec.Scenario, error) {
	groups, err := catalogue.Groups()
	if err != nil {
		return nil, err
	}
	var all []spec.Scenario
	for _, c := range chapters {
		all = append(all, c.scenarios()...)
	}
	return described(groups, all)
})

// Matching returns those scenarios of All whose ids keep accepts. It skips the checks of all others, so it is faster
// than All.
func Matching(keep func(id string) bool) ([]spec.Scenario, error) {
	groups, err := catalogue.Matching(keep)
	if err != nil {
		return nil, err
	}
	var all []spec.Scenario
	for _, c := range chapters {
		if slices.ContainsFunc(groups, func(g catalogue.Group) bool { return slices.Contains(c.groups, g.Name) }) {
			all = append(all, c.scenarios()...)
		}
	}
	return described(groups, slices.DeleteFunc(all, func(s spec.Scenario) bool { return !keep(s.ID) }))
}

// described returns scenarios with what their rows say, checked and sorted.
func described(groups []catalogue.Group, scenarios []spec.Scenario) ([]spec.Scenario, error) {
	all, err := catalogue.Describe(groups, scenarios)
	if err != nil {
		return nil, err
	}
	return spec.Sort(all)
}
