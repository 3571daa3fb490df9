// SPDX-License-Identifier: Apache-2.0

// Package scenarios lists the behaviours of the catalogue that are written as scenarios.
package scenarios

import (
	"slices"

	"github.com/viplab/viplab/scenarios/affinity"
	"github.com/viplab/viplab/scenarios/clusterip"
	"github.com/viplab/viplab/scenarios/conntrack"
	"github.com/viplab/viplab/scenarios/dualstack"
	"github.com/viplab/viplab/scenarios/egress"
	"github.com/viplab/viplab/scenarios/etplocal"
	"github.com/viplab/viplab/scenarios/externalips"
	"github.com/viplab/viplab/scenarios/hairpin"
	"github.com/viplab/viplab/scenarios/headless"
	"github.com/viplab/viplab/scenarios/healthcheck"
	"github.com/viplab/viplab/scenarios/ipvs"
	"github.com/viplab/viplab/scenarios/itplocal"
	"github.com/viplab/viplab/scenarios/lifecycle"
	"github.com/viplab/viplab/scenarios/loadbalancer"
	"github.com/viplab/viplab/scenarios/networkpolicy"
	"github.com/viplab/viplab/scenarios/nodeport"
	"github.com/viplab/viplab/scenarios/noendpoints"
	"github.com/viplab/viplab/scenarios/portbinding"
	"github.com/viplab/viplab/scenarios/restart"
	"github.com/viplab/viplab/scenarios/ruleset"
	"github.com/viplab/viplab/scenarios/scale"
	"github.com/viplab/viplab/scenarios/sctp"
	"github.com/viplab/viplab/scenarios/security"
	"github.com/viplab/viplab/scenarios/sourceranges"
	"github.com/viplab/viplab/scenarios/topology"
	"github.com/viplab/viplab/scenarios/udp"
	"github.com/viplab/viplab/suite/spec"
)

// All are all scenarios, in no particular order.
func All() []spec.Scenario {
	return slices.Concat(
		clusterip.Scenarios, nodeport.Scenarios, etplocal.Scenarios, affinity.Scenarios, hairpin.Scenarios,
		conntrack.Scenarios, lifecycle.Scenarios, udp.Scenarios, egress.Scenarios,
		noendpoints.Scenarios, loadbalancer.Scenarios, externalips.Scenarios, itplocal.Scenarios, healthcheck.Scenarios,
		sourceranges.Scenarios,
		portbinding.Scenarios, ruleset.Scenarios, ipvs.Scenarios,
		restart.Scenarios, headless.Scenarios, security.Scenarios, scale.Scenarios,
		dualstack.Scenarios, topology.Scenarios, sctp.Scenarios,
		networkpolicy.Scenarios,
	)
}
