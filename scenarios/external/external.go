// SPDX-License-Identifier: Apache-2.0

// Package external holds the scenarios of traffic from outside the cluster: load-balancer addresses, external IPs,
// source ranges, externalTrafficPolicy Local, and the health checks that load balancers make.
package external

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the chapter's scenarios.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		allocation(), etplocal(), externalips(), healthcheck(), healthPorts(), ingress(), loadbalancer(),
		portsTaken(), shortcuts(), sourceranges(),
	)
}
