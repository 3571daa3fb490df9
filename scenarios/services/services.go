// SPDX-License-Identifier: Apache-2.0

// Package services holds the scenarios of Services as clients inside and outside the cluster use them: ClusterIPs,
// NodePorts, headless Services and their names, session affinity, hairpin connections, both IP families, and many
// Services at once.
package services

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the chapter's scenarios.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		affinity(), changed(), changedFields(), clusterip(), dualstack(), hairpin(), headless(), moreRecords(), nodeport(),
		portbinding(), scale(),
	)
}
