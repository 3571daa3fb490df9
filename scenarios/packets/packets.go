// SPDX-License-Identifier: Apache-2.0

// Package packets holds the scenarios of single packets and flows: connection tracking, masquerading, UDP, SCTP, and
// packets that pretend to be something else.
package packets

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the chapter's scenarios.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		conntrack(), staleUDP(), segments(), egress(), icmpErrors(), masquerading(), sctpScenarios(), security(), udp(),
	)
}
