// SPDX-License-Identifier: Apache-2.0

// Package hairpin holds the scenarios of a pod that reaches itself through its own Service.
package hairpin

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "hairpin-among-many", Group: "hairpin", Priority: spec.P0,
		Source: "TestClusterIPEndpoints 'hairpin to cluster IP'; the endpoint chain's rule for its own source",
		Why: "A pod that is one of several behind a Service reaches the Service every time, also when the choice falls " +
			"on itself; the others see its own address.",
		Needs: []spec.Feature{spec.ClusterIP, spec.Hairpin, spec.SourceAddress},
		Given: []store.Object{Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"a1", "b1", "a2"}, Even: true,
				SeenAs: spec.ItselfUnlessHairpin("n1")},
		}}},
	},
	{
		ID: "hairpin-clusterip", Group: "hairpin", Priority: spec.P1,
		Source: "e2e service.go 'allow pods to hairpin back to themselves through services'",
		Why: "A pod that is the only one behind a Service reaches itself through the ClusterIP, as an address of its " +
			"node.",
		Needs: []spec.Feature{spec.ClusterIP, spec.Hairpin},
		Given: []store.Object{Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a1"}, Port: 8080, SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "hairpin-external-vips", Group: "hairpin", Priority: spec.P2,
		Source: "the endpoint chain's rule for its own source",
		Why: "A pod reaches itself through the NodePort of its node, the load balancer's address and an external IP, " +
			"under both traffic policies.",
		Needs: []spec.Feature{spec.NodePort, spec.LoadBalancer, spec.ExternalIPs, spec.ETPLocal, spec.Hairpin},
		Given: []store.Object{
			Backend("a1", "n1"), Service("any", LoadBalancer(), Selecting("web"),
				ExternalIPs("198.51.100.70", "2001:db8:51::70")),
			Service("local", LoadBalancer(), ETPLocal(), Selecting("web"), ExternalIPs("198.51.100.71", "2001:db8:51::71")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{Ingress("any", "203.0.113.70", "2001:db8:113::70"),
				Ingress("local", "203.0.113.71", "2001:db8:113::71")},
			Rows: itself(
				spec.NodePortAt("n1", "any", 80), spec.IngressOf("any", 80), spec.AddrAt("198.51.100.70", "2001:db8:51::70", 80),
				spec.NodePortAt("n1", "local", 80), spec.IngressOf("local", 80),
				spec.AddrAt("198.51.100.71", "2001:db8:51::71", 80),
			),
		}},
	},
	{
		ID: "hairpin-udp-and-v6", Group: "hairpin", Priority: spec.P2,
		Source: "the endpoint chain's rule for its own source, of every protocol and family",
		Why:    "A pod's datagrams to itself come back from the ClusterIP that it sent them to, in each IP family.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.NodePort, spec.Hairpin},
		Given:  []store.Object{Backend("a1", "n1", UDP(8081)), Service("web", NodePort(), UDPPort(53, 8081))},
		Steps: []spec.Step{{Rows: []spec.Row{
			// The client's socket is connected: it takes an answer from the address that it sent to, and from no other.
			{From: "a1", To: spec.ClusterIPOf("web", 53), Proto: "udp", Times: 3, By: []string{"a1"}, Port: 8081,
				SeenAs: spec.NodeAddr("n1")},
			{From: "a1", To: spec.NodePortAt("n1", "web", 53), Proto: "udp", Times: 3, By: []string{"a1"}, Port: 8081,
				SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "hairpin-no-overmasquerade", Group: "hairpin", Priority: spec.P1,
		Source: "TestInternalExternalMasquerade 'pod to ClusterIP'",
		Why: "What is done for a pod that reaches itself is not done to others: a neighbour on the same node, itself " +
			"behind the Service or not, is seen as it is.",
		Needs: []spec.Feature{spec.ClusterIP, spec.Hairpin, spec.SourceAddress},
		Given: []store.Object{Backend("a1", "n1"), Pod("b1", "n1"), Backend("d1", "n1", App("other")), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "b1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a1"}, SeenAs: spec.Itself()},
			{From: "d1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a1"}, SeenAs: spec.Itself()},
			{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a1"}, SeenAs: spec.NodeAddr("n1")},
		}}},
	},
}

// itself are the ways by which a1 is to reach itself.
func itself(ways ...spec.Target) []spec.Row {
	var rows []spec.Row
	for _, to := range ways {
		rows = append(rows, spec.Row{From: "a1", To: to, By: []string{"a1"}, Port: 8080, SeenAs: spec.NodeAddr("n1")})
	}
	return rows
}
