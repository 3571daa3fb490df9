// SPDX-License-Identifier: Apache-2.0

// Package mechanisms holds the scenarios of what a proxier keeps in the kernel: the rules of iptables, nftables and
// IPVS, and what remains of them when the proxier restarts, changes its mode or goes.
package mechanisms

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the chapter's scenarios.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		ipvs(), restart(), ruleset(),
	)
}
