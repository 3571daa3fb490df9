// SPDX-License-Identifier: Apache-2.0

package services

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// changes are the scenarios of addresses and ports that are chosen, come and go.
func changes() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:      "nodeport-address-filter",
			Cluster: OnPrimaryAddresses(),
			Needs:   []spec.Feature{spec.NodePort},
			Given:   []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n3", "web", 80), By: []string{"a2"}},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80).On(spec.Secondary), Want: spec.Refused},
				{From: "c1", To: spec.NodePortAt("n1", "web", 80).On(spec.Secondary), Want: spec.Refused},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Secondary), Want: spec.Refused},
			}}},
		},
		{
			ID: "nodeport-update", NodePorts: []uint16{30042, 30043},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)), nodeportAt("web", 30042)},
			Steps: []spec.Step{
				{Name: "30042", Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30042), By: []string{"a2"}},
					{From: "client", To: spec.HostAt("n1", 30043), Want: spec.Refused},
				}},
				{Name: "30043", Do: []spec.Action{Edit("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30043 })},
					Rows: []spec.Row{
						{From: "client", To: spec.HostAt("n1", 30043), By: []string{"a2"}},
						{From: "client", To: spec.HostAt("n1", 30042), Want: spec.Refused},
						{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", Want: spec.Refused},
					}},
				{Name: "UDP too", Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					UDPPort(80, 8081)(s)
					s.Spec.Ports[1].NodePort = 30043
				})}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30043), By: []string{"a2"}, Port: 8080},
					{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", By: []string{"a2"}, Port: 8081},
				}},
				{Name: "none", Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
					for i := range s.Spec.Ports {
						s.Spec.Ports[i].NodePort = 0
					}
				})}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30043), Want: spec.Refused},
					{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", Want: spec.Refused},
					{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}},
				}},
			},
		},
		{
			ID: "nodeport-late-address", NodePorts: []uint16{30044, 30045},
			Needs: []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
			Given: []store.Object{Backend("a2", "n2"), nodeportAt("web", 30044)},
			Steps: []spec.Step{
				{Name: "before", Do: []spec.Action{RouteVia("client", "198.51.100.63", "2001:db8:51::63", "n1")}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30044), By: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30044), Want: spec.NotServed},
				}},
				{Name: "the address is there, and a change makes proxiers sync", Do: []spec.Action{
					Alias("n1", "198.51.100.63", "2001:db8:51::63"), Apply(nodeportAt("other", 30045)),
				}, Rows: []spec.Row{
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30044), By: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30045), By: []string{"a2"}},
				}},
			},
		},
	}
}
