// SPDX-License-Identifier: Apache-2.0

package external

import (
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// etplocal returns the scenarios of externalTrafficPolicy Local: outside traffic stays on the node it came to and keeps its
// client's address.
func etplocal() []spec.Scenario {
	return slices.Concat(paths(), changes())
}

func paths() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "etp-local-source-preserved",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress, spec.KernelNAT},
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, SeenAs: spec.Itself(),
					Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID:    "etp-local-only-local-endpoints",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"),
				Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 40, By: []string{"a1"}},
			}}},
		},
		{
			ID:    "etp-local-no-endpoint-drops",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer, spec.ExternalIPs},
			Given: []store.Object{
				Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal(), ExternalIPs("198.51.100.11", "2001:db8:51::11")),
			},
			Steps: []spec.Step{
				{
					Name: "by way of the node without a pod",
					Do: []spec.Action{
						Ingress("web", "203.0.113.11", "2001:db8:113::11"),
						RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n3"),
						RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n3"),
					},
					Rows: []spec.Row{
						{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
						{From: "client", To: spec.IngressOf("web", 80), Want: spec.Silence},
						{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), Want: spec.Silence},
					},
				},
				{
					Name: "by way of the node that has it",
					Do: []spec.Action{
						RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n1"),
						RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n1"),
					},
					Rows: []spec.Row{
						{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}},
						{From: "client", To: spec.IngressOf("web", 80), By: []string{"a1"}},
						{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), By: []string{"a1"}},
					},
				},
			},
		},
		{
			ID:    "etp-local-clusterip-unaffected",
			Needs: []spec.Feature{spec.ClusterIP, spec.ETPLocal},
			Given: []store.Object{Pod("c3", "n3"), Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c3", To: spec.ClusterIPOf("web", 80), By: []string{"a1"}},
			}}},
		},
		{
			ID:    "etp-local-host-shortcut",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.12", "2001:db8:113::12")},
				Rows: []spec.Row{
					{From: "n3", To: spec.NodePortAt("n3", "web", 80), By: []string{"a1", "a2"}, Even: true,
						SeenAs: spec.NodeAddr("n3")},
					{From: "n3", To: spec.IngressOf("web", 80), By: []string{"a1", "a2"}, Even: true, SeenAs: spec.NodeAddr("n3")},
				},
			}},
		},
		{
			ID:    "etp-local-imbalance",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{
				Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"), Backend("c2", "n2"),
				Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 90, By: []string{"a1"}},
				{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2", "b2", "c2"}, Even: true},
			}}},
		},
		healthyNodes(),
	}
}
