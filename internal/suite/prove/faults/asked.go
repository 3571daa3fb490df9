// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/internal/proxiers/keeper"
)

// builtIn have a keeper, the hooks of which Kernel needs.
var builtIn = []string{"iptables", "iptables-legacy", "nftables", "userspace", "ipvs"}

// asked are faults in what built-in proxiers ask of the kernel without a program.
var asked = []Fault{
	{
		Name: "always-healthy", Breaks: "Health-check ports say that there are endpoints where there are none.",
		On: builtIn, Scenarios: []string{"etp-local-lb-only-healthy-nodes"},
		Kernel: keeper.Hooks{Health: func(c healthcheck.Check) healthcheck.Check {
			c.LocalEndpoints = max(c.LocalEndpoints, 1)
			return c
		}},
	},
	{
		Name: "never-healthy", Breaks: "Health-check ports say that there are no endpoints.",
		On: builtIn, Scenarios: []string{"etp-local-lb-only-healthy-nodes", "hc-reflects-local-endpoints", "hc-port-lifecycle",
			"hc-terminating-only", "hc-listen-scope", "hc-allowed-by-firewall", "hc-body-and-weight"},
		Kernel: keeper.Hooks{Health: func(c healthcheck.Check) healthcheck.Check {
			c.LocalEndpoints = 0
			return c
		}},
	},
	{
		Name: "endpoints-miscounted", Breaks: "Health-check ports tell of one endpoint too many, where there are any.",
		On: builtIn, Scenarios: []string{"hc-body-and-weight"},
		Kernel: keeper.Hooks{Health: func(c healthcheck.Check) healthcheck.Check {
			c.LocalEndpoints += min(c.LocalEndpoints, 1)
			return c
		}},
	},
	{
		Name: "stale-flows-stay", Breaks: "UDP flows to endpoints that are gone go on for ever.",
		On: []string{"iptables", "iptables-legacy", "nftables", "ipvs"},
		Scenarios: []string{"ct-udp-endpoint-removed", "ct-udp-frontend-only-change", "ct-udp-no-endpoints-keeps-entries",
			"ct-udp-targetport-change", "ct-udp-zero-to-one"},
		Kernel: keeper.Hooks{Stale: func(*conntrack.Wanted) *conntrack.Wanted { return conntrack.NewWanted(nil) }},
	},
}
