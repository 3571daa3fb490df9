// SPDX-License-Identifier: Apache-2.0

package services

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// parity asks for each kind of frontend once. All other scenarios hold over IPv6 too: they probe every family that the
// cluster has.
func parity() spec.Scenario {
	return spec.Scenario{
		ID: "v6-parity", Families: v6,
		Needs: []spec.Feature{
			spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.SessionAffinity, spec.Hairpin,
		},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", UDP(8080)), Backend("a2", "n2", UDP(8080)),
			Service("web", Port(80, 8080), UDPPort(80, 8080), LoadBalancer(), onlyV6, ExternalIPs("2001:db8:51::201")),
			Service("sticky", Selecting("web"), onlyV6, Affinity()), Service("empty", NodePort(), onlyV6),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				IngressAt("web", "2001:db8:113::205"), RouteVia("client", "203.0.113.205", "2001:db8:113::205", "n1"),
				RouteVia("client", "198.51.100.201", "2001:db8:51::201", "n1"),
			},
			Rows: inFamily(lab.V6,
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1", "a2"}, Even: true},
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", By: []string{"a1", "a2"}, Even: true},
				spec.Row{From: "n1", To: spec.ClusterIPOf("web", 80), Times: 6, By: []string{"a1", "a2"}},
				spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 22, By: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 6, By: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.NodePortAt("n3", "web", 80), Proto: "udp", Times: 6, By: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.AddrAt("198.51.100.201", "2001:db8:51::201", 80), Times: 6,
					By: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.IngressOf("web", 80), Times: 6, By: []string{"a1", "a2"}},
				spec.Row{From: "c1", To: spec.ClusterIPOf("sticky", 80), By: []string{"a1", "a2"}, Sticky: true},
				spec.Row{From: "n1", To: spec.NodePortAt("n1", "web", 80).On(spec.Loopback), Want: spec.NotServed},
			),
		}, {
			Name: "a Service without endpoints",
			Rows: inFamily(lab.V6, Unserved(
				spec.Row{From: "c1", To: spec.ClusterIPOf("empty", 80)},
				spec.Row{From: "client", To: spec.NodePortAt("n1", "empty", 80)},
			)...),
		}},
	}
}

func inFamily(f lab.Family, rows ...spec.Row) []spec.Row {
	for i := range rows {
		rows[i].Family = f
	}
	return rows
}

// familyFiltering gives Services addresses of both families, whichever they have themselves. The range for IPv6 does
// not contain the client.
func familyFiltering() spec.Scenario {
	return spec.Scenario{
		ID: "ds-family-filtering", Families: dualstackBoth,
		Needs: []spec.Feature{spec.ClusterIP, spec.ExternalIPs, spec.LoadBalancer},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"),
			Service("dual", Selecting("web"), ExternalIPs("198.51.100.202", "2001:db8:51::202")),
			Service("four", Selecting("web"), onlyV4, ExternalIPs("2001:db8:51::203", "198.51.100.203")),
			Service("six", Selecting("web"), onlyV6, ExternalIPs("198.51.100.204", "2001:db8:51::204")),
			Service("ranged", Selecting("web"), LoadBalancer(), sourceRanges("2001:db8:ffff::/48", " 192.168.7.0/24 ")),
			Service("ranged-six", Selecting("web"), onlyV6, LoadBalancer(), sourceRanges("203.0.113.0/24", "fd00:7::/64")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				IngressAt("ranged", "203.0.113.206", "2001:db8:113::206"),
				IngressAt("ranged-six", "203.0.113.207", "2001:db8:113::207"),
				RouteVia("client", "198.51.100.202", "2001:db8:51::202", "n1"),
				RouteVia("client", "198.51.100.203", "2001:db8:51::203", "n1"),
				RouteVia("client", "198.51.100.204", "2001:db8:51::204", "n1"),
				RouteVia("client", "203.0.113.206", "2001:db8:113::206", "n1"),
				RouteVia("client", "203.0.113.207", "2001:db8:113::207", "n1"),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.AddrAt("198.51.100.202", "2001:db8:51::202", 80), By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.203", "2001:db8:51::203", 80), Family: lab.V4, By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.203", "2001:db8:51::203", 80), Family: lab.V6, Want: spec.NotServed},
				{From: "client", To: spec.AddrAt("198.51.100.204", "2001:db8:51::204", 80), Family: lab.V6, By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.204", "2001:db8:51::204", 80), Family: lab.V4, Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPOf("four", 80), Family: lab.V4, By: []string{"a1"}},
				{From: "c1", To: spec.ClusterIPOf("six", 80), Family: lab.V6, By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.206", "2001:db8:113::206", 80), Family: lab.V4, By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.206", "2001:db8:113::206", 80), Family: lab.V6, Want: spec.NotServed},
				{From: "client", To: spec.AddrAt("203.0.113.207", "2001:db8:113::207", 80), Family: lab.V6, By: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.207", "2001:db8:113::207", 80), Family: lab.V4, Want: spec.NotServed},
			},
		}},
	}
}

func sourceRanges(ranges ...string) ServiceOption {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}
