// SPDX-License-Identifier: Apache-2.0

// Package conntrack holds the scenarios of connection tracking: what a node remembers of a translated connection.
package conntrack

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "ct-entry-plain-dnat", Group: "conntrack", Priority: spec.P0,
		Source: "the Service network rests on conntrack's reverse translation",
		Why: "A connection from a pod to a ClusterIP is one conntrack entry on the client's node: destination " +
			"rewritten, source kept, no mark left.",
		Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
		Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 2, By: []string{"b1", "a2"}, Flow: spec.TranslatedOn("n1")},
		}}},
	},
	{
		ID: "ct-entry-masqueraded", Group: "conntrack", Priority: spec.P0,
		Source: "the Service network rests on conntrack's reverse translation",
		Why: "A connection from outside to a NodePort is one conntrack entry on the node: destination rewritten to the " +
			"pod, source to the node.",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 2, By: []string{"a1", "a2"},
				Flow: spec.MasqueradedOn("n1")},
		}}},
	},
	states,
	invalidNotLeaked,
	liberal,
	udpEndpointRemoved,
	udpZeroToOne,
	udpUnreadyThenReady,
	udpTargetPortChange,
	udpUntouchedFlows,
	udpNoEndpoints,
	udpFrontendOnlyChange,
	tcpNotFlushed,
	cleanupCollateral,
	nothingOnRejectDrop,
	timeouts,
}
