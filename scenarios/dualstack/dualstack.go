// SPDX-License-Identifier: Apache-2.0

// Package dualstack holds the scenarios of IPv6 and of clusters with both families.
package dualstack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

var (
	onlyV4 = InFamilies(corev1.IPv4Protocol)
	onlyV6 = InFamilies(corev1.IPv6Protocol)
	both   = []lab.Family{lab.V4, lab.V6}
	v6     = []lab.Family{lab.V6}
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	parity,
	{
		ID: "ds-both-vips", Group: "ipv6/dual-stack", Priority: spec.P1, Families: both,
		Source: "KEP-563; e2e dual_stack.go 'should create service with ipv4,v6 cluster ip', '… ipv6,v4 cluster ip', " +
			"granular checks",
		Why: "A dual-stack Service is served at its address of each family and at the nodes' addresses of each, " +
			"whichever family is its first.",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("four-six", Selecting("web"), NodePort(), InFamilies(corev1.IPv4Protocol, corev1.IPv6Protocol)),
			Service("six-four", Selecting("web"), NodePort(), InFamilies(corev1.IPv6Protocol, corev1.IPv4Protocol)),
			Service("sticky", Selecting("web"), InFamilies(corev1.IPv6Protocol, corev1.IPv4Protocol), Affinity()),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("four-six", 80), By: []string{"a1", "a2"}, Even: true},
			{From: "c1", To: spec.ClusterIPOf("six-four", 80), By: []string{"a1", "a2"}, Even: true},
			{From: "client", To: spec.NodePortAt("n1", "four-six", 80), Times: 3, By: []string{"a1", "a2"}},
			{From: "client", To: spec.NodePortAt("n1", "six-four", 80), Times: 3, By: []string{"a1", "a2"}},
			{From: "c1", To: spec.ClusterIPOf("sticky", 80), By: []string{"a1", "a2"}, Sticky: true},
		}}},
	},
	{
		ID: "ds-families-independent", Group: "ipv6/dual-stack", Priority: spec.P1, Families: both,
		Source: "kpng service-proxy.md; pkg/proxy/metaproxier",
		Why:    "A dual-stack Service with endpoints of one family alone serves that family and refuses the other.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given:  []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", Selecting(""), NodePort())},
		Steps: []spec.Step{
			{Name: "IPv4 endpoints", Do: []spec.Action{SliceIn([]lab.Family{lab.V4}, "web", "web", "", 8080,
				Listed{Host: "a1"})},
				Rows: append(ofFamily(lab.V4, spec.Row{By: []string{"a1"}}), ofFamily(lab.V6, spec.Row{Want: spec.Refused})...)},
			{Name: "both", Do: []spec.Action{SliceIn(v6, "web", "web", "", 8080, Listed{Host: "a1"})},
				Rows: append(ofFamily(lab.V4, spec.Row{By: []string{"a1"}}), ofFamily(lab.V6, spec.Row{By: []string{"a1"}})...)},
			{Name: "IPv6 endpoints", Do: []spec.Action{SliceIn([]lab.Family{lab.V4}, "web", "web", "", 8080)},
				Rows: append(ofFamily(lab.V6, spec.Row{By: []string{"a1"}}), ofFamily(lab.V4, spec.Row{Want: spec.Refused})...)},
		},
	},
	{
		ID: "ds-single-stack-service", Group: "ipv6/dual-stack", Priority: spec.P1, Families: both,
		Source: "GetClusterIPByFamily; e2e dual_stack.go 'single stack service with cluster ip from primary service range'",
		Why:    "A Service of one family is not there in the other, not even its NodePort.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"),
			Service("four", Selecting("web"), NodePort(), onlyV4), Service("six", Selecting("web"), NodePort(), onlyV6),
		},
		Steps: []spec.Step{{Rows: append(singleStack("four", lab.V4, lab.V6), singleStack("six", lab.V6, lab.V4)...)}},
	},
	familyFiltering,
	{
		ID: "v6-masquerade-scope", Group: "ipv6/dual-stack", Priority: spec.P2, Families: v6,
		Source: "derived: a masqueraded packet takes an address of the device that it leaves by, which may have a " +
			"link-local one alone",
		Why: "An IPv6 connection that a node masquerades comes from an address that can be routed to, so that answers " +
			"find back.",
		Needs: []spec.Feature{spec.NodePort, spec.ClusterIP, spec.Hairpin, spec.KernelNAT},
		Given: []store.Object{Backend("a1", "n1", App("near")), Backend("a2", "n2", App("far")),
			Service("near", NodePort()), Service("far", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "near", 80), Family: lab.V6, By: []string{"a1"},
				SeenAs: spec.EgressOf("n1"), Flow: spec.MasqueradedOn("n1")},
			{From: "client", To: spec.NodePortAt("n1", "far", 80), Family: lab.V6, By: []string{"a2"},
				SeenAs: spec.EgressOf("n1"), Flow: spec.MasqueradedOn("n1")},
			{From: "a1", To: spec.ClusterIPOf("near", 80), Family: lab.V6, By: []string{"a1"}, SeenAs: spec.EgressOf("n1")},
		}, Check: noLinkLocalSource}},
	},
	{
		ID: "v6-icmpv6-and-frag", Group: "ipv6/dual-stack", Priority: spec.P2, Families: v6,
		Source: "derived: RFC 8201 path MTU discovery, RFC 8200 fragments, RFC 4861 neighbour discovery",
		Why: "Over IPv6 a client of a Service learns of a narrow link, datagrams travel in pieces, and neighbours " +
			"still find the node.",
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a2", "n2", App("dns"), UDP(5353), TCP(8080)),
			Service("dns", UDPPort(53, 5353), onlyV6), Service("pieces", Selecting("dns"), UDPPort(53, 5353), onlyV6),
			Service("web", Selecting("dns"), onlyV6),
		},
		Steps: []spec.Step{
			{Name: "a narrow link", Check: func(ctx context.Context, w spec.World) error {
				return LearnsOfNarrowPath(ctx, w, "c1", spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53), "a2", lab.V6)
			}},
			{Name: "fragments", Check: func(ctx context.Context, w spec.World) error {
				return InPieces(ctx, w, "c1", spec.ClusterIPOf("pieces", 53), lab.V6)
			}},
			{Name: "neighbours", Check: nodesAreFound},
		},
	},
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
		{From: "c1", To: spec.ClusterIPOf(service, 80), Family: has, By: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Family: has, By: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Family: lacks, Want: spec.Refused},
		{From: "n1", To: spec.NodePortAt("n1", service, 80), Family: lacks, Want: spec.Refused},
	}
}

// noLinkLocalSource connects once more, to see the address itself.
func noLinkLocalSource(ctx context.Context, w spec.World) error {
	for _, service := range []string{"near", "far"} {
		conn, answer, err := w.Probe(ctx, "client", spec.NodePortAt("n1", service, 80), lab.V6, "tcp")
		if err != nil {
			return err
		}
		if conn == nil {
			return fmt.Errorf("the NodePort of %s: %s", service, answer)
		}
		if err := conn.Close(); err != nil {
			return &spec.HarnessError{Err: err}
		}
		if !answer.Peer.Addr().IsGlobalUnicast() {
			return fmt.Errorf("%s saw %s, which cannot be routed to", answer.Server, answer.Peer)
		}
	}
	return nil
}

// nodesAreFound asks on the LAN who has n1's address.
func nodesAreFound(ctx context.Context, w spec.World) error {
	mac, err := traffic.Resolve(ctx, w.Lab().Client().NS, "eth0", w.Lab().Node("n1").Addr(lab.V6),
		w.Lab().Node("n3").Addr(lab.V6))
	if err != nil {
		return &spec.HarnessError{Err: err}
	}
	if mac == nil {
		return fmt.Errorf("n1 does not answer neighbour solicitations for its own address")
	}
	return nil
}
