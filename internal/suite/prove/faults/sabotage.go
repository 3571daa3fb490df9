// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// builtIn are the proxiers that follow spec.Sabotage.
var builtIn = []string{"iptables", "iptables-legacy", "nftables", "userspace", "ipvs"}

var (
	keepStaleFlows = spec.Sabotage{KeepStaleFlows: func() bool { return true }}
	ignoreFailures = spec.Sabotage{IgnoreFailures: func() bool { return true }}
)

// sabotageFaults break health check ports, the clean-up of connection tracking and the retry after failures.
var sabotageFaults = []Fault{
	{Name: "always-healthy", Description: "Health-check ports say that there are endpoints where there are none.",
		Proxiers: builtIn, Sabotage: spec.Sabotage{CountEndpoints: func(n int) int { return max(n, 1) }}},
	{Name: "never-healthy", Description: "Health-check ports say that there are no endpoints.", Proxiers: builtIn,
		Sabotage: spec.Sabotage{CountEndpoints: func(int) int { return 0 }}},
	{Name: "endpoints-miscounted", Description: "Health-check ports tell of one endpoint too many, where there are any.",
		Proxiers: builtIn, Sabotage: spec.Sabotage{CountEndpoints: func(n int) int { return n + min(n, 1) }}},
	// Relays end with their Service.
	{Name: "stale-flows-stay", Description: "UDP flows to endpoints that are gone go on for ever.",
		Proxiers: []string{"iptables", "iptables-legacy", "nftables", "ipvs"}, Sabotage: keepStaleFlows},
	{Name: "sessions-stay", Description: "Relays keep UDP clients with endpoints that are gone.",
		Proxiers: []string{"userspace"}, Sabotage: keepStaleFlows},
	{Name: "gives-up-on-failure", Description: "When rules cannot be changed, all rules are removed.",
		Proxiers: builtIn, Sabotage: spec.Sabotage{RemoveOnFailure: func() bool { return true }}},
	{Name: "failures-ignored", Description: "Changes of rules that fail are not tried again.",
		Proxiers: builtIn, Sabotage: ignoreFailures},
	// With IPVS no write fails then. The proxier looks whether what it wrote is still there.
	{Name: "lost-tables-stay-lost", Description: "A table that somebody else has deleted is not made again.",
		Proxiers: hooked, Sabotage: ignoreFailures},
	{Name: "health-checked-hourly", Description: "It takes two hours until a proxier says that it cannot write rules.",
		Config: func(c *spec.ProxyConfig) { c.SyncPeriod = time.Hour }},
	{Name: "broken-watches-stay", Description: "Once its watches have broken, a proxier learns of no change any more.",
		Proxiers: builtIn, Deaf: true},
}
