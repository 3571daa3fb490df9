// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy holds the scenarios of what NetworkPolicies do to Services and pods while things change. What
// each policy means by itself is for package internal/suite/netpol.
package networkpolicy

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Scenarios returns the scenarios of what NetworkPolicies do to Services and pods while things change. What each policy
// means by itself is for package internal/suite/netpol.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		services(), dns(), dynamic(), addresses(), orders(), connections(), flows(), nodes(), sources(), families(), lives(), atomic(), scale(),
		details(), names(), latencies(), tunnels(), churn(),
	)
}

// four are the pods that most scenarios begin with: a1 on n1, its neighbour b1, and b2 and c2 on another node. Each has
// a label with its name.
func four(more ...store.Object) []store.Object {
	return append([]store.Object{echo("a1", "n1"), echo("b1", "n1"), echo("b2", "n2"), echo("c2", "n2")}, more...)
}
