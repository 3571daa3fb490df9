// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

var (
	onlyV4        = InFamilies(corev1.IPv4Protocol)
	onlyV6        = InFamilies(corev1.IPv6Protocol)
	dualstackBoth = []lab.Family{lab.V4, lab.V6}
	v6            = []lab.Family{lab.V6}
)

// dualstack returns the scenarios of IPv6 and of clusters with both families.
func dualstack() []spec.Scenario {
	return []spec.Scenario{
		parity(),
		dsBothVips(),
		{
			ID: "ds-families-independent", Families: dualstackBoth, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", Selecting(""), NodePort())},
			Steps: []spec.Step{
				{Name: "IPv4 endpoints", Do: []spec.Action{SliceIn([]lab.Family{lab.V4}, "web", "web", "", 8080,
					SliceEndpoint{Host: "a1"})},
					Rows: append(ofFamily(lab.V4, spec.Row{Servers: []string{"a1"}}),
						ofFamily(lab.V6, spec.Row{Want: spec.Refused})...)},
				{Name: "both", Do: []spec.Action{SliceIn(v6, "web", "web", "", 8080, SliceEndpoint{Host: "a1"})},
					Rows: append(ofFamily(lab.V4, spec.Row{Servers: []string{"a1"}}),
						ofFamily(lab.V6, spec.Row{Servers: []string{"a1"}})...)},
				{Name: "IPv6 endpoints", Do: []spec.Action{SliceIn([]lab.Family{lab.V4}, "web", "web", "", 8080)},
					Rows: append(ofFamily(lab.V6, spec.Row{Servers: []string{"a1"}}),
						ofFamily(lab.V4, spec.Row{Want: spec.Refused})...)},
			},
		},
		{
			ID: "ds-single-stack-service", Families: dualstackBoth, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"),
				Service("four", Selecting("web"), NodePort(), onlyV4), Service("six", Selecting("web"), NodePort(), onlyV6),
			},
			Steps: []spec.Step{{Rows: append(singleStack("four", lab.V4, lab.V6), singleStack("six", lab.V6, lab.V4)...)}},
		},
		familyFiltering(),
		masqueradeScope(),
		{
			ID: "v6-icmpv6-and-frag", Families: v6, Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a2", "n2", App("dns"), UDP(5353), TCP(8080)),
				Service("dns", UDPPort(53, 5353), onlyV6), Service("pieces", Selecting("dns"), UDPPort(53, 5353), onlyV6),
				Service("web", Selecting("dns"), onlyV6),
			},
			Steps: []spec.Step{
				{Name: "a narrow link", Check: func(ctx context.Context, w spec.World) error {
					return CheckPathMTU(ctx, w, "c1", spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53), "a2", lab.V6)
				}},
				{Name: "fragments", Check: func(ctx context.Context, w spec.World) error {
					return CheckFragments(ctx, w, "c1", spec.ClusterIPOf("pieces", 53), lab.V6)
				}},
				{Name: "neighbours", Check: nodesAreFound},
			},
		},
	}
}

func dsBothVips() spec.Scenario {
	return spec.Scenario{
		ID: "ds-both-vips", Families: dualstackBoth,
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("four-six", Selecting("web"), NodePort(), InFamilies(corev1.IPv4Protocol, corev1.IPv6Protocol)),
			Service("six-four", Selecting("web"), NodePort(), InFamilies(corev1.IPv6Protocol, corev1.IPv4Protocol)),
			Service("sticky", Selecting("web"), InFamilies(corev1.IPv6Protocol, corev1.IPv4Protocol), Affinity()),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("four-six", 80), Servers: []string{"a1", "a2"}, Even: true},
			{From: "c1", To: spec.ClusterIPOf("six-four", 80), Servers: []string{"a1", "a2"}, Even: true},
			{From: "client", To: spec.NodePortAt("n1", "four-six", 80), Times: 3, Servers: []string{"a1", "a2"}},
			{From: "client", To: spec.NodePortAt("n1", "six-four", 80), Times: 3, Servers: []string{"a1", "a2"}},
			{From: "c1", To: spec.ClusterIPOf("sticky", 80), Servers: []string{"a1", "a2"}, Sticky: true},
		}}},
	}
}

// ofFamily is a row for the ClusterIP and the NodePort of the Service web in one family.
func ofFamily(f lab.Family, r spec.Row) []spec.Row {
	r.Family = f
	vip, nodePort := r, r
	vip.From, vip.To = "c1", spec.ClusterIPOf("web", 80)
	nodePort.From, nodePort.To = "client", spec.NodePortAt("n1", "web", 80)
	return []spec.Row{vip, nodePort}
}

func singleStack(service string, has, lacks lab.Family) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf(service, 80), Family: has, Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Family: has, Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Family: lacks, Want: spec.Refused},
		{From: "n1", To: spec.NodePortAt("n1", service, 80), Family: lacks, Want: spec.Refused},
	}
}

// masqueradeScope lets a proxier choose what to masquerade, and a pod that reaches itself be seen as anyone.
func masqueradeScope() spec.Scenario {
	rows := inFamily(lab.V6,
		spec.Row{From: "client", To: spec.NodePortAt("n1", "near", 80), Servers: []string{"a1"},
			SeenAs: spec.ClientAddrOrNode()},
		spec.Row{From: "client", To: spec.NodePortAt("n1", "far", 80), Servers: []string{"a2"},
			SeenAs: spec.ClientAddrOrNode()},
		spec.Row{From: "a1", To: spec.ClusterIPOf("near", 80), Servers: []string{"a1"}},
	)
	return spec.Scenario{
		ID: "v6-masquerade-scope", Families: v6, Needs: []spec.Feature{spec.NodePort, spec.ClusterIP},
		Given: []store.Object{
			Backend("a1", "n1", App("near")), Backend("a2", "n2", App("far")),
			Service("near", NodePort()), Service("far", NodePort()),
		},
		Steps: []spec.Step{{Rows: rows, Check: func(ctx context.Context, w spec.World) error {
			for _, row := range rows {
				spec.TryDo(comesFromRoutable(ctx, w, row))
			}
			return nil
		}}},
	}
}

// comesFromRoutable connects once more, to see the address itself.
func comesFromRoutable(ctx context.Context, w spec.World, row spec.Row) error {
	conn, answer, err := w.Probe(ctx, row.From, row.To, row.Family, row.Protocol())
	spec.TryDo(err)
	if conn == nil {
		return fmt.Errorf("%s -> %s: %s", row.From, row.To, answer)
	}
	spec.MustDo(conn.Close())
	if !answer.Peer.Addr().IsGlobalUnicast() {
		return fmt.Errorf("%s saw %s, which cannot be routed to", answer.Server, answer.Peer)
	}
	return nil
}

// nodesAreFound asks on the LAN who has n1's address.
func nodesAreFound(ctx context.Context, w spec.World) error {
	mac := spec.Must(traffic.Resolve(ctx, w.Lab().Client().NS, "eth0", w.Lab().Node("n1").Addr(lab.V6),
		w.Lab().Node("n3").Addr(lab.V6)))
	if mac == nil {
		return fmt.Errorf("n1 does not answer neighbour solicitations for its own address")
	}
	return nil
}

// parity asks for each kind of frontend once. All other scenarios hold over IPv6 too: they probe every family that the
// cluster has.
func parity() spec.Scenario {
	return spec.Scenario{
		ID: "v6-parity", Families: v6,
		Needs: []spec.Feature{
			spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.SessionAffinity,
		},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", UDP(8080)), Backend("a2", "n2", UDP(8080)),
			Service("web", Port(80, 8080), UDPPort(80, 8080), LoadBalancer(), onlyV6, ExternalIPs("2001:db8:51::201")),
			Service("sticky", Selecting("web"), onlyV6, Affinity()), Service("empty", NodePort(), onlyV6),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				IngressIPs("web", corev1.LoadBalancerIPModeVIP, "2001:db8:113::205"),
				RouteVia("client", "203.0.113.205", "2001:db8:113::205", "n1"),
				RouteVia("client", "198.51.100.201", "2001:db8:51::201", "n1"),
			},
			Rows: inFamily(lab.V6,
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}, Even: true},
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: []string{"a1", "a2"}, Even: true},
				spec.Row{From: "n1", To: spec.ClusterIPOf("web", 80), Times: 6, Servers: []string{"a1", "a2"}},
				spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 22, Servers: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 6, Servers: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.NodePortAt("n3", "web", 80), Proto: "udp", Times: 6,
					Servers: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.AddrAt("198.51.100.201", "2001:db8:51::201", 80), Times: 6,
					Servers: []string{"a1", "a2"}},
				spec.Row{From: "client", To: spec.IngressOf("web", 80), Times: 6, Servers: []string{"a1", "a2"}},
				spec.Row{From: "c1", To: spec.ClusterIPOf("sticky", 80), Servers: []string{"a1", "a2"}, Sticky: true},
				spec.Row{From: "n1", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Loopback), Want: spec.NotServed},
			),
		}, {
			Name: "a Service without endpoints",
			Rows: inFamily(lab.V6, WantRefused(
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
			Service("ranged", Selecting("web"), LoadBalancer(), SourceRanges("2001:db8:ffff::/48", " 192.168.7.0/24 ")),
			Service("ranged-six", Selecting("web"), onlyV6, LoadBalancer(), SourceRanges("203.0.113.0/24", "fd00:7::/64")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Ingress("ranged", "203.0.113.206", "2001:db8:113::206"),
				Ingress("ranged-six", "203.0.113.207", "2001:db8:113::207"),
				RouteVia("client", "198.51.100.202", "2001:db8:51::202", "n1"),
				RouteVia("client", "198.51.100.203", "2001:db8:51::203", "n1"),
				RouteVia("client", "198.51.100.204", "2001:db8:51::204", "n1"),
				RouteVia("client", "203.0.113.206", "2001:db8:113::206", "n1"),
				RouteVia("client", "203.0.113.207", "2001:db8:113::207", "n1"),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.AddrAt("198.51.100.202", "2001:db8:51::202", 80), Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.203", "2001:db8:51::203", 80), Family: lab.V4,
					Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.203", "2001:db8:51::203", 80), Family: lab.V6, Want: spec.NotServed},
				{From: "client", To: spec.AddrAt("198.51.100.204", "2001:db8:51::204", 80), Family: lab.V6,
					Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("198.51.100.204", "2001:db8:51::204", 80), Family: lab.V4, Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPOf("four", 80), Family: lab.V4, Servers: []string{"a1"}},
				{From: "c1", To: spec.ClusterIPOf("six", 80), Family: lab.V6, Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.206", "2001:db8:113::206", 80), Family: lab.V4,
					Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.206", "2001:db8:113::206", 80), Family: lab.V6, Want: spec.NotServed},
				{From: "client", To: spec.AddrAt("203.0.113.207", "2001:db8:113::207", 80), Family: lab.V6,
					Servers: []string{"a1"}},
				{From: "client", To: spec.AddrAt("203.0.113.207", "2001:db8:113::207", 80), Family: lab.V4, Want: spec.NotServed},
			},
		}},
	}
}
