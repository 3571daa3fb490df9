// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nodeport returns the scenarios of NodePorts: the same port on every node, for clients outside the cluster.
func nodeport() []spec.Scenario {
	return slices.Concat(nodeportServed(), clients(), changes())
}

func nodeportServed() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "nodeport-node-with-endpoint",
			Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, Port: 8080, SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		{
			ID:    "nodeport-node-without-endpoint",
			Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1"),
					Flow: spec.MasqueradedOn("n1")},
			}}},
		},
		{
			ID:    "nodeport-every-node",
			Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n3", "web", 80), By: []string{"a2"}},
			}}},
		},
		{
			ID:    "nodeport-any-local-address",
			Needs: []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80).On(spec.Secondary), By: []string{"a2"}},
			}}},
		},
		{
			ID:    "nodeport-has-clusterip",
			Needs: []spec.Feature{spec.NodePort, spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("b2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), By: []string{"b1", "b2"}, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"b1", "b2"}, Even: true},
			}}},
		},
		{
			ID:    "nodeport-localhost",
			Needs: []spec.Feature{spec.NodePort, spec.NodePortLocalhost},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Loopback), Family: lab.V4, By: []string{"a2"},
					SeenAs: spec.NodeAddr("n1")},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Loopback), Family: lab.V6, Want: spec.Refused},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
			}}},
		},
		{
			ID: "nodeport-forward-policy-drop", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.NodePort, spec.ForwardAccept},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{
				Name: "FORWARD drops", Do: []spec.Action{ForwardPolicy("n1", "DROP")},
				Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}}},
			}},
		},
		singleNATHop(),
		allocationRules(),
	}
}
