// SPDX-License-Identifier: Apache-2.0

package external

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// externalips returns the scenarios of spec.externalIPs: addresses that are routed to nodes, which serve them.
func externalips() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "externalip-not-on-any-node", Needs: []spec.Feature{spec.ExternalIPs},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"),
				Service("web", ExternalIPs("198.51.100.22", "2001:db8:51::22"))},
			Steps: []spec.Step{{
				Do: []spec.Action{RouteVia("client", "198.51.100.22", "2001:db8:51::22", "n1")},
				Rows: []spec.Row{
					{From: "c1", To: spec.AddrAt("198.51.100.22", "2001:db8:51::22", 80), Servers: []string{"a2"}, Port: 8080,
						SeenAs: spec.ClientAddrOrNode()},
					{From: "n1", To: spec.AddrAt("198.51.100.22", "2001:db8:51::22", 80), Servers: []string{"a2"}, Port: 8080,
						SeenAs: spec.ClientAddrOrNode()},
					{From: "client", To: spec.AddrAt("198.51.100.22", "2001:db8:51::22", 80), Servers: []string{"a2"}, Port: 8080,
						SeenAs: spec.ClientAddrOrNode()},
				},
			}},
		},
		externalipOnNode(),
		{
			ID: "externalip-etp-local", Needs: []spec.Feature{spec.ExternalIPs, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{
				Backend("a1", "n1"), Backend("a2", "n2"),
				Service("web", NodePort(), ETPLocal(), ExternalIPs("198.51.100.24", "2001:db8:51::24", "198.51.100.25",
					"2001:db8:51::25")),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					RouteVia("client", "198.51.100.24", "2001:db8:51::24", "n1"),
					RouteVia("client", "198.51.100.25", "2001:db8:51::25", "n3"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.AddrAt("198.51.100.24", "2001:db8:51::24", 80), Times: 25, Servers: []string{"a1"},
						SeenAs: spec.ClientAddr()},
					{From: "client", To: spec.AddrAt("198.51.100.25", "2001:db8:51::25", 80), Want: spec.Silence},
				},
			}},
		},
		externalipSharedAndRemoved(),
		{
			ID:      "externalip-gate-off",
			Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{NoExternalIPs: true}, Nodes: []string{"n1"}},
			Needs:   []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.ExternalIPsGate},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ExternalIPs("198.51.100.27", "2001:db8:51::27")),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{RouteVia("client", "198.51.100.27", "2001:db8:51::27", "n1")},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.27", "2001:db8:51::27", 80), Want: spec.NotServed},
					{From: "c1", To: spec.AddrAt("198.51.100.27", "2001:db8:51::27", 80), Want: spec.NotServed},
					{From: "n1", To: spec.AddrAt("198.51.100.27", "2001:db8:51::27", 80), Want: spec.NotServed},
				},
			}},
		},
	}
}

func externalipSharedAndRemoved() spec.Scenario {
	return spec.Scenario{
		ID: "externalip-shared-and-removed", Needs: []spec.Feature{spec.ExternalIPs},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2", App("other")),
			shared("web", "web", 80), shared("other", "other", 81),
		},
		Steps: []spec.Step{
			{
				Name: "one port each", Do: []spec.Action{RouteVia("client", shared4, shared6, "n1")},
				Rows: append(sharedRows(80, "a1"), sharedRows(81, "a2")...),
			},
			{
				Name: "a rival for the same port", Do: []spec.Action{Apply(shared("rival", "other", 80))},
				Rows: append(sharedRows(80, "a1", "a2"), sharedRows(81, "a2")...),
			},
			{
				Name: "the first is gone", Do: []spec.Action{Delete("Service", "web")},
				Rows: append(sharedRows(80, "a2"), sharedRows(81, "a2")...),
			},
			{
				Name: "the rival is gone too", Do: []spec.Action{Delete("Service", "rival")},
				Rows: append(sharedRows(81, "a2"),
					spec.Row{From: "client", To: spec.AddrAt(shared4, shared6, 80), Want: spec.NotServed},
					spec.Row{From: "c1", To: spec.AddrAt(shared4, shared6, 80), Want: spec.NotServed}),
			},
		},
	}
}

func externalipOnNode() spec.Scenario {
	return spec.Scenario{
		ID: "externalip-on-node", Needs: []spec.Feature{spec.ExternalIPs},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{{
			// The address is there before the Service is: not every proxier looks at addresses when nothing else changes.
			Do: []spec.Action{
				AddAddress("n1", "198.51.100.23", "2001:db8:51::23"), Serve("n1", "tcp", 8023),
				RouteVia("client", "198.51.100.23", "2001:db8:51::23", "n1"),
				Apply(Service("web", ExternalIPs("198.51.100.23", "2001:db8:51::23"))),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.AddrAt("198.51.100.23", "2001:db8:51::23", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "c1", To: spec.AddrAt("198.51.100.23", "2001:db8:51::23", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "n1", To: spec.AddrAt("198.51.100.23", "2001:db8:51::23", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "client", To: spec.AddrAt("198.51.100.23", "2001:db8:51::23", 8023), Servers: []string{"n1"}},
				{From: "c1", To: spec.AddrAt("198.51.100.23", "2001:db8:51::23", 8023), Servers: []string{"n1"}},
			},
		}},
	}
}

const shared4, shared6 = "198.51.100.26", "2001:db8:51::26"

// shared is a Service on a port of the shared address.
func shared(name, app string, port int32) *corev1.Service {
	return Service(name, Selecting(app), Port(port, 8080), ExternalIPs(shared4, shared6))
}

func sharedRows(port uint16, by ...string) []spec.Row {
	return []spec.Row{
		{From: "client", To: spec.AddrAt(shared4, shared6, port), Times: 5, Servers: by},
		{From: "c1", To: spec.AddrAt(shared4, shared6, port), Times: 5, Servers: by},
	}
}
