// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nobody holds ranges without an address of a host in the lab.
var nobody = []string{"198.18.0.0/15", "2001:db8:ffff::/48"}

// sourceranges returns the scenarios of spec.loadBalancerSourceRanges: who may use a load balancer's address.
func sourceranges() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "sr-allow-deny", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
			Given: []store.Object{
				Backend("a2", "n2"), Service("web", LoadBalancer(), SourceRanges(ClientRange4, ClientRange6)),
			},
			Steps: []spec.Step{{
				Do: IngressViaN1("web", "203.0.113.40", "2001:db8:113::40"),
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Times: 3, Servers: []string{"a2"}},
					{From: "client", Source: OtherClientAddr, To: spec.IngressOf("web", 80), Times: 3, Want: DropOrReject},
				},
			}},
		},
		srPodClients(),
		srSurvivesSyncs(),
		{
			ID: "sr-node-client", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
			Given: []store.Object{
				Backend("a2", "n2"), Service("web", LoadBalancer(), SourceRanges("192.168.7.11/32", "fd00:7::11/128")),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					AddAddress("n1", "203.0.113.44", "2001:db8:113::44"),
					IngressIPs("web", corev1.LoadBalancerIPModeVIP, "203.0.113.43", "2001:db8:113::43", "203.0.113.44",
						"2001:db8:113::44"),
				},
				Rows: []spec.Row{
					{From: "n1", To: spec.AddrAt("203.0.113.43", "2001:db8:113::43", 80), Servers: []string{"a2"}},
					{From: "n1", Source: spec.AddrAt("203.0.113.44", "2001:db8:113::44", 0),
						To: spec.AddrAt("203.0.113.44", "2001:db8:113::44", 80), Servers: []string{"a2"}},
					{From: "n3", To: spec.AddrAt("203.0.113.43", "2001:db8:113::43", 80), Want: DropOrReject},
				},
			}},
		},
		{
			ID:    "sr-does-not-cover",
			Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort, spec.ClusterIP, spec.ExternalIPs, spec.SourceRanges},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), SourceRanges(nobody...),
					ExternalIPs("198.51.100.45", "2001:db8:51::45")),
			},
			Steps: []spec.Step{{
				Do: append(IngressViaN1("web", "203.0.113.45", "2001:db8:113::45"),
					RouteVia("client", "198.51.100.45", "2001:db8:51::45", "n1")),
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Want: DropOrReject},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.45", "2001:db8:51::45", 80), Servers: []string{"a2"}},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
				},
			}},
		},
		anyAndFormat(),
		srRuntimeChange(),
		{
			ID: "sr-without-endpoints", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
			Given: []store.Object{Service("web", LoadBalancer(), SourceRanges(ClientRange4, ClientRange6))},
			Steps: []spec.Step{{
				Do: IngressViaN1("web", "203.0.113.50", "2001:db8:113::50"),
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Want: spec.Refused},
					{From: "client", Source: OtherClientAddr, To: spec.IngressOf("web", 80), Want: DropOrReject},
				},
			}},
		},
	}
}

func srRuntimeChange() spec.Scenario {
	return spec.Scenario{
		ID: "sr-runtime-change", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
		Given: []store.Object{Backend("a2", "n2"), Service("web", LoadBalancer())},
		Steps: []spec.Step{
			{Name: "no ranges", Do: IngressViaN1("web", "203.0.113.49", "2001:db8:113::49"), Rows: []spec.Row{
				{From: "client", To: spec.IngressOf("web", 80), Conn: "long", Servers: []string{"a2"}},
			}},
			{Name: "others are listed", Do: []spec.Action{Edit("web", SourceRanges(nobody...))}, Rows: []spec.Row{
				{From: "client", To: spec.IngressOf("web", 80), Want: DropOrReject},
				{From: "client", To: spec.IngressOf("web", 80), Conn: "long", Servers: []string{"a2"},
					Want: spec.Reply | spec.Silence | spec.Reset, Choice: "an open connection of a client that ranges exclude"},
			}},
			{
				Name: "the client is listed", Do: []spec.Action{Edit("web", SourceRanges(ClientRange4, ClientRange6))},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a2"}},
					{From: "client", Source: OtherClientAddr, To: spec.IngressOf("web", 80), Want: DropOrReject},
				},
			},
			{Name: "no ranges again", Do: []spec.Action{Edit("web", SourceRanges())}, Rows: []spec.Row{
				{From: "client", Source: OtherClientAddr, To: spec.IngressOf("web", 80), Servers: []string{"a2"}},
			}},
		},
	}
}

// passing is how many Services come while the client connects.
const passing = 4

// srSurvivesSyncs lists the client by ranges of one address, which programs may write otherwise than they read them. It
// asks over UDP: TCP sends again what is dropped.
func srSurvivesSyncs() spec.Scenario {
	rows := []spec.Row{{From: "client", To: spec.IngressOf("web", 80), Proto: "udp", Servers: []string{"a2"}}}
	return spec.Scenario{
		ID: "sr-survives-syncs", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
		Given: []store.Object{
			Backend("a2", "n2", UDP(8080)),
			Service("web", LoadBalancer(), UDPPort(80, 8080), SourceRanges("192.168.7.201/32", "fd00:7::201/128")),
		},
		Steps: []spec.Step{
			{Name: "the client is listed", Do: IngressViaN1("web", "203.0.113.167", "2001:db8:113::167"), Rows: rows},
			{Name: "other Services come", Check: During(rows, func(ctx context.Context, w spec.World, _ spec.Traffic) {
				for i := range passing {
					RunActions(ctx, w, Apply(Service(fmt.Sprint("passing", i), Selecting("web"))))
					spec.TryDo(w.Settle(ctx))
				}
			})},
		},
	}
}

func srPodClients() spec.Scenario {
	return spec.Scenario{
		ID: "sr-pod-clients", Needs: []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.SourceRanges},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("d1", "n1"), Backend("a2", "n2"), Service("any", LoadBalancer(), Selecting("web"),
				SourceRanges(nobody...)),
			Service("local", LoadBalancer(), ETPLocal(), Selecting("web"), SourceRanges(nobody...)),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Ingress("any", "203.0.113.41", "2001:db8:113::41"), Ingress("local", "203.0.113.42", "2001:db8:113::42"),
				listing("any", "c1"), listing("local", "c1"),
			},
			Rows: []spec.Row{
				{From: "c1", To: spec.IngressOf("any", 80), Servers: []string{"a2"}},
				{From: "c1", To: spec.IngressOf("local", 80), Servers: []string{"a2"}},
				{From: "d1", To: spec.IngressOf("any", 80), Want: DropOrReject},
				{From: "d1", To: spec.IngressOf("local", 80), Want: DropOrReject},
			},
		}},
	}
}

// listing makes the ranges of a Service contain a pod and no other sender of the lab.
func listing(service, pod string) spec.Action {
	return NewAction("list pod "+pod, func(w spec.World) error {
		ranges := slices.Clone(nobody)
		for _, a := range spec.Must(w.Host(pod)).Addrs() {
			ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()).String())
		}
		return store.Update(w.Store(), w.Namespace(), service, SourceRanges(ranges...))
	})
}

// anyAndFormat has a Service for each way to write ranges.
func anyAndFormat() spec.Scenario {
	return spec.Scenario{
		ID: "sr-any-and-format", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
		Given: []store.Object{
			Backend("a2", "n2"),
			Service("everybody", LoadBalancer(), Selecting("web"), SourceRanges("198.18.0.0/15", "0.0.0.0/0",
				"2001:db8:ffff::/48",
				"::/0")),
			Service("blanks", LoadBalancer(), Selecting("web"), SourceRanges(" "+ClientRange4+" ", " "+ClientRange6)),
			Service("only4", LoadBalancer(), Selecting("web"), SourceRanges("198.18.0.0/15")),
			Service("only6", LoadBalancer(), Selecting("web"), SourceRanges("2001:db8:ffff::/48")),
		},
		Steps: []spec.Step{{
			Do: slices.Concat(
				IngressViaN1("everybody", "203.0.113.46", "2001:db8:113::46"),
				IngressViaN1("blanks", "203.0.113.47", "2001:db8:113::47"),
				IngressViaN1("only4", "203.0.113.48", "2001:db8:113::48"),
				IngressViaN1("only6", "203.0.113.51", "2001:db8:113::51"),
			),
			Rows: []spec.Row{
				{From: "client", To: spec.IngressOf("everybody", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.IngressOf("blanks", 80), Servers: []string{"a2"}},
				{From: "client", Source: OtherClientAddr, To: spec.IngressOf("blanks", 80), Want: DropOrReject},
				{From: "client", To: spec.IngressOf("only4", 80), Family: lab.V4, Want: DropOrReject},
				{From: "client", To: spec.IngressOf("only4", 80), Family: lab.V6, Servers: []string{"a2"}},
				{From: "client", To: spec.IngressOf("only6", 80), Family: lab.V6, Want: DropOrReject},
				{From: "client", To: spec.IngressOf("only6", 80), Family: lab.V4, Servers: []string{"a2"}},
			},
		}},
	}
}
