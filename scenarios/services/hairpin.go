// SPDX-License-Identifier: Apache-2.0

package services

import (
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// hairpin returns the scenarios of a pod that reaches itself through its own Service.
func hairpin() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "hairpin-among-many", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
			Given: []store.Object{Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: FromEach(spec.Row{
				To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "b1", "a2"}, Even: true,
				SeenAs: spec.ClientAddrUnlessHairpin(),
			}, "a1", "b1", "a2")}},
		},
		{
			ID: "hairpin-clusterip", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Backend("a1", "n1"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a1"}, Port: 8080},
			}}},
		},
		{
			ID:    "hairpin-external-vips",
			Needs: []spec.Feature{spec.NodePort, spec.LoadBalancer, spec.ExternalIPs, spec.ETPLocal},
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
			ID: "hairpin-udp-and-v6", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Backend("a1", "n1", UDP(8081)), Service("web", NodePort(), UDPPort(53, 8081))},
			Steps: []spec.Step{{Rows: []spec.Row{
				// The client's socket is connected: it takes an answer from the address that it sent to, and from no other.
				{From: "a1", To: spec.ClusterIPOf("web", 53), Proto: "udp", Times: 3, Servers: []string{"a1"}, Port: 8081},
				{From: "a1", To: spec.NodePortAt("n1", "web", 53), Proto: "udp", Times: 3, Servers: []string{"a1"}, Port: 8081},
			}}},
		},
		{
			ID: "hairpin-no-overmasquerade", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
			Given: []store.Object{Backend("a1", "n1"), Pod("b1", "n1"), Backend("d1", "n1", App("other")), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
				{From: "d1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a1"}},
			}}},
		},
	}
}

// itself are the ways by which a1 is to reach itself.
func itself(ways ...spec.Target) []spec.Row {
	var rows []spec.Row
	for _, to := range ways {
		rows = append(rows, spec.Row{From: "a1", To: to, Servers: []string{"a1"}, Port: 8080})
	}
	return rows
}
