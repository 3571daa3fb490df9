// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// conntrack returns the scenarios of connection tracking: what a node remembers of a translated connection.
func conntrack() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "ct-entry-plain-dnat",
			Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 2, By: []string{"b1", "a2"}, Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID:    "ct-entry-masqueraded",
			Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 2, By: []string{"a1", "a2"},
					Flow: spec.MasqueradedOn("n1")},
			}}},
		},
		states(),
		invalidNotLeaked(),
		liberal(),
		udpEndpointRemoved(),
		udpZeroToOne(),
		udpUnreadyThenReady(),
		udpTargetPortChange(),
		udpUntouchedFlows(),
		udpNoEndpoints(),
		udpFrontendOnlyChange(),
		tcpNotFlushed(),
		cleanupCollateral(),
		nothingOnRejectDrop(),
		timeouts(),
	}
}
