// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// itplocal returns the scenarios of internalTrafficPolicy Local: traffic to a ClusterIP stays on its node.
func itplocal() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "itp-local-uses-local", Needs: []spec.Feature{spec.ClusterIP, spec.ITPLocal, spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web", ITPLocal()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "b1"}, Even: true, SeenAs: spec.ClientAddr()},
			}}},
		},
		{
			ID: "itp-local-none-drops", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ITPLocal},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("c3", "n3"), Backend("a1", "n1"), Service("web", ITPLocal()),
				Service("exposed", NodePort(), ITPLocal(), Selecting("web")),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
				{From: "c1", To: spec.ClusterIPOf("exposed", 80), Servers: []string{"a1"}},
				{From: "c3", To: spec.ClusterIPOf("web", 80), Times: 3, Want: DropOrReject},
				{From: "n3", To: spec.ClusterIPOf("web", 80), Times: 3, Want: DropOrReject},
				{From: "c3", To: spec.ClusterIPOf("exposed", 80), Times: 3, Want: DropOrReject},
				{From: "n3", To: spec.ClusterIPOf("exposed", 80), Times: 3, Want: DropOrReject},
			}}},
		},
		{
			ID: "itp-local-host-and-hostnetwork", Needs: []spec.Feature{spec.ClusterIP, spec.ITPLocal},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", ITPLocal()),
				Pod("h1", "n1", HostNetwork(), App("host"), TCP(18082)), Pod("h2", "n2", HostNetwork(), App("host"), TCP(18082)),
				Service("host", ITPLocal(), Port(80, 18082)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.ClusterIPOf("web", 80), Times: 25, Servers: []string{"a1"}},
				{From: "n3", To: spec.ClusterIPOf("web", 80), Want: DropOrReject},
				{From: "c1", To: spec.ClusterIPOf("host", 80), Times: 25, Servers: []string{"h1"}},
				{From: "n1", To: spec.ClusterIPOf("host", 80), Times: 25, Servers: []string{"h1"}},
				{From: "c3", To: spec.ClusterIPOf("host", 80), Want: DropOrReject},
				{From: "n3", To: spec.ClusterIPOf("host", 80), Want: DropOrReject},
			}}},
		},
		itpLocalNotExternal(),
		{
			ID:    "itp-and-etp-local",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.ITPLocal, spec.ETPLocal},
			Given: []store.Object{Pod("c3", "n3"), Backend("a1", "n1"), Service("web", LoadBalancer(), ITPLocal(), ETPLocal())},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.62", "2001:db8:113::62"),
					RouteVia("client", "203.0.113.62", "2001:db8:113::62", "n3")},
				Rows: []spec.Row{
					{From: "c3", To: spec.ClusterIPOf("web", 80), Times: 3, Want: DropOrReject},
					{From: "n3", To: spec.ClusterIPOf("web", 80), Times: 3, Want: DropOrReject},
					{From: "client", To: spec.NodePortAt("n3", "web", 80), Times: 3, Want: spec.Silence},
					{From: "client", To: spec.IngressOf("web", 80), Times: 3, Want: spec.Silence},
					{From: "c3", To: spec.IngressOf("web", 80), Servers: []string{"a1"}},
					{From: "n3", To: spec.IngressOf("web", 80), Servers: []string{"a1"}},
				},
			}},
		},
		toggle(),
	}
}

func itpLocalNotExternal() spec.Scenario {
	return spec.Scenario{
		ID:    "itp-local-not-external",
		Needs: []spec.Feature{spec.NodePort, spec.LoadBalancer, spec.ExternalIPs, spec.ITPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("web", LoadBalancer(), ITPLocal(), ExternalIPs("198.51.100.61", "2001:db8:51::61")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{Ingress("web", "203.0.113.61", "2001:db8:113::61"), RouteService("client", "web", "n1")},
			Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1", "a2"}, Even: true,
					SeenAs: spec.ClientAddrOrNode()},
				{From: "c1", To: spec.IngressOf("web", 80), Servers: []string{"a1", "a2"}, Even: true,
					SeenAs: spec.ClientAddrOrNode()},
				{From: "n1", To: spec.AddrAt("198.51.100.61", "2001:db8:51::61", 80), Servers: []string{"a1", "a2"}, Even: true,
					SeenAs: spec.ClientAddrOrNode()},
				{From: "client", To: spec.ClusterIPOf("web", 80), If: spec.ClusterIPFromOutside, Times: 25,
					Servers: []string{"a1"}},
			},
		}},
	}
}

// toggle opens a connection and a flow while the only pod is on another node, and uses them all the time.
func toggle() spec.Scenario {
	return spec.Scenario{
		ID: "itp-toggle", Needs: []spec.Feature{spec.ClusterIP, spec.ITPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), Service("web", Port(80, 8080), UDPPort(80, 8080)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			return w.During(ctx, []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "stream", Servers: []string{"a2"}},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Conn: "datagrams", If: spec.UDPDrains,
					Servers: []string{"a2"}},
			}, func(ctx context.Context, t spec.Traffic) error {
				spec.MustDo(w.Apply(Backend("a1", "n1", UDP(8080))))
				spec.TryDo(underPolicy(ctx, w, t, corev1.ServiceInternalTrafficPolicyLocal,
					spec.Row{Times: 25, Servers: []string{"a1"}}))
				return underPolicy(ctx, w, t, corev1.ServiceInternalTrafficPolicyCluster,
					spec.Row{Servers: []string{"a1", "a2"}, Even: true})
			})
		}}},
	}
}

// underPolicy sets the policy, wants the row to hold for new connections of both protocols, and lets the old ones go
// on.
func underPolicy(ctx context.Context, w spec.World, t spec.Traffic, to corev1.ServiceInternalTrafficPolicy,
	row spec.Row) error {
	RunActions(ctx, w, Edit("web", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &to }))
	row.From, row.To = "c1", spec.ClusterIPOf("web", 80)
	datagrams := row
	datagrams.Proto = "udp"
	spec.TryDo(w.Expect(ctx, row, datagrams))
	return t.Rounds(ctx, 3)
}
