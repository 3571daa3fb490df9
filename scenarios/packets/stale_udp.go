// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// staleUDP returns the scenarios of UDP flows that must not outlive what they were led by.
func staleUDP() []spec.Scenario {
	return []spec.Scenario{
		lastEndpointLeaves("ct-udp-slice-emptied", frontends{outside(100), outside(101), 30000}, udpSlice("dns", "")),
		lastEndpointLeaves("ct-udp-slice-deleted", frontends{outside(102), outside(103), 30001}, DeleteSlice("dns")),
		udpAddressReused(), udpPortRenumbered(), udpTypeChange(), udpExternalZeroToOne(), udpOneOfThreeLeaves(),
		udpProxierAway(), udpStartAmongMany(), udpNeverAnswered(),
	}
}

// udpSlice writes the EndpointSlice of a UDP port of a Service, with the name of the port or, if it has none, of the
// Service.
func udpSlice(service, portName string, hosts ...string) spec.Action {
	name := cmp.Or(portName, service)
	return NewAction("write EndpointSlice "+name, func(w spec.World) error {
		var endpoints []SliceEndpoint
		for _, h := range hosts {
			endpoints = append(endpoints, SliceEndpoint{Host: h})
		}
		all := SlicesOf(w, name, service, portName, 5353, endpoints...)
		for _, s := range all {
			s.(*discoveryv1.EndpointSlice).Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
		}
		return w.Apply(all...)
	})
}

// lastEndpointLeaves has a slice written by hand: its endpoint is not said to be unready before it is gone.
func lastEndpointLeaves(id string, f frontends, leave spec.Action) spec.Scenario {
	refused, moved := spec.Row{Want: spec.Refused, Times: 2}, spec.Row{Servers: []string{"b1"}, MayMove: true, Times: 2}
	s := oldPodRunsOn(id, f)
	s.Given = f.given(Selecting(""))
	s.Steps = []spec.Step{
		f.begun(udpSlice("dns", "", "a1")),
		{Name: "no endpoint", Do: []spec.Action{leave}, Rows: f.everywhere(refused)},
		{Name: "b1", Do: []spec.Action{udpSlice("dns", "", "b1")}, Rows: f.everywhere(moved)},
	}
	return s
}

// udpAddressReused gives the address of a1 to another Service when its own one is deleted.
func udpAddressReused() spec.Scenario {
	f := frontends{outside(104), outside(105), 30002}
	return oldPodRunsOn("ct-udp-address-reused", f, spec.Step{
		Name: "the address is another Service's", Do: []spec.Action{
			Delete("Service", "dns"), Apply(Service("other", Selecting(""), UDPPort(53, 5353))), udpSlice("other", "", "a1"),
		},
		Rows: append(f.everywhere(spec.Row{Want: spec.NotServed, Times: 2}),
			flow("b1", spec.ClusterIPOf("other", 53), spec.Row{Servers: []string{"a1"}})),
	})
}

func udpPortRenumbered() spec.Scenario {
	f := frontends{outside(106), outside(107), 30003}
	gone, stays := spec.Row{Want: spec.NotServed, Times: 2}, spec.Row{Servers: []string{"a1"}}
	return oldPodRunsOn("ct-udp-port-renumbered", f, spec.Step{
		Name: "another port", Do: []spec.Action{Edit("dns", func(s *corev1.Service) { s.Spec.Ports[0].Port = 54 })},
		Rows: slices.Concat(flowsToVIP(gone), f.toAddresses(gone), []spec.Row{
			flow("client", spec.HostAt("n1", f.nodePort), stays),
			flow("b1", spec.ClusterIPRaw("dns", 54), stays), flow("b1", spec.AddrAt(f.external.v4, f.external.v6, 54), stays),
		}),
	})
}

func udpTypeChange() spec.Scenario {
	f := frontends{outside(108), outside(109), 30004}
	gone, stays := spec.Row{Want: spec.NotServed, Times: 2}, spec.Row{Servers: []string{"a1"}}
	return oldPodRunsOn("ct-udp-type-change", f,
		spec.Step{
			Name: "ClusterIP", Do: []spec.Action{
				IngressIPs("dns", corev1.LoadBalancerIPModeVIP), Edit("dns", func(s *corev1.Service) {
					s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
				}),
			},
			Rows: []spec.Row{
				flow("client", spec.AddrAt(f.ingress.v4, f.ingress.v6, 53), gone),
				flow("client", spec.HostAt("n1", f.nodePort), gone),
			},
		},
		spec.Step{
			Name: "what it keeps",
			Rows: append(flowsToVIP(stays), flow("client", spec.AddrAt(f.external.v4, f.external.v6, 53), stays)),
		},
		spec.Step{
			Name: "ExternalName", Do: []spec.Action{Apply(Service("dns", ExternalName("example.org")))},
			Rows: f.toAddresses(gone),
		})
}

// udpExternalZeroToOne has clients send without a pause while first the Service comes, and then its endpoint.
func udpExternalZeroToOne() spec.Scenario {
	f := frontends{outside(110), outside(111), 30005}
	sending := spec.Row{If: spec.KernelNAT, Want: spec.Reply | spec.NotServed, Servers: []string{"a1"}}
	return spec.Scenario{
		ID: "ct-udp-external-zero-to-one", NodePorts: []uint16{f.nodePort},
		Needs: []spec.Feature{spec.NodePort, spec.LoadBalancer, spec.ExternalIPs},
		Given: []store.Object{dnsPod("a1", "n1")},
		Steps: []spec.Step{
			{
				Name: "no Service", Do: []spec.Action{
					Readiness("a1", false),
					RouteVia("client", f.ingress.v4, f.ingress.v6, "n1"), RouteVia("client", f.external.v4, f.external.v6, "n1"),
				},
				Rows: f.flows(spec.Row{Want: spec.NotServed}),
			},
			{Name: "the Service comes, and its endpoint", Check: During(f.flows(sending),
				func(ctx context.Context, w spec.World, t spec.Traffic) {
					RunActions(ctx, w, Apply(f.service()), Ingress("dns", f.ingress.v4, f.ingress.v6))
					spec.TryDo(w.Settle(ctx))
					spec.TryDo(t.Rounds(ctx, 1))
					RunActions(ctx, w, Readiness("a1", true))
					spec.TryDo(w.Settle(ctx))
				})},
			{Name: "served", Rows: f.flows(spec.Row{Servers: []string{"a1"}, Times: 2})},
		},
	}
}

// udpOneOfThreeLeaves has sixty flows to each of two ports. That none of them is with a1, so that nothing is shown,
// happens once in 10^10 times.
func udpOneOfThreeLeaves() spec.Scenario {
	all := []string{"a1", "a2", "a3"}
	return spec.Scenario{
		ID: "ct-udp-one-of-three-leaves", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("a2", "n2"), dnsPod("a3", "n3"),
			Service("dns", Selecting(""), ServicePort("left", corev1.ProtocolUDP, 53, 5353),
				ServicePort("kept", corev1.ProtocolUDP, 54, 5353)),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{udpSlice("dns", "left", all...), udpSlice("dns", "kept", all...)},
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: all},
				{From: "c1", To: spec.ClusterIPOf("dns", 54), Proto: "udp", Servers: all},
			},
			Check: EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
				RunActions(ctx, w, udpSlice("dns", "left", all...))
				spec.TryDo(w.Settle(ctx))
				var sockets []*Socket
				for range 3 * spared {
					s := OpenSocket(ctx, w, "c1", family)
					defer s.Close()
					sockets = append(sockets, s)
				}
				left, kept := spec.ClusterIPOf("dns", 53), spec.ClusterIPOf("dns", 54)
				leftBefore, keptBefore := serversOf(w, sockets, left, family), serversOf(w, sockets, kept, family)
				RunActions(ctx, w, udpSlice("dns", "left", all[1:]...))
				spec.TryDo(w.Settle(ctx))
				for i, now := range serversOf(w, sockets, left, family) {
					if before := leftBefore[i]; now == "a1" || before != "a1" && now != before {
						return fmt.Errorf("a1 leaves port 53: a flow of %s is now with %s", before, now)
					}
				}
				if now := serversOf(w, sockets, kept, family); !slices.Equal(now, keptBefore) {
					return fmt.Errorf("a1 leaves port 53: the flows to port 54 were with %v, and are with %v", keptBefore, now)
				}
				return nil
			}),
		}},
	}
}

// serversOf sends a request on each socket, and returns the servers that answer.
func serversOf(w spec.World, sockets []*Socket, to spec.Target, family lab.Family) (servers []string) {
	at := spec.Must(w.Resolve(to, family, "udp"))
	for i, s := range sockets {
		spec.MustDo(s.Send(at, fmt.Sprintf("%s-%d", to, i)))
	}
	for i, s := range sockets {
		got := spec.Try(s.Receive(1))
		if len(got) == 0 {
			spec.TryDo(fmt.Errorf("flow %d to %s over %s is not answered", i, to, family))
		}
		servers = append(servers, strings.TrimPrefix(got[0].Server, w.Namespace()+"/"))
	}
	return servers
}

// udpNeverAnswered has flows to a1, which gets their datagrams and answers none: connection tracking has seen them in
// one direction alone.
func udpNeverAnswered() spec.Scenario {
	f := frontends{outside(115), outside(116), 30035}
	unanswered := f.everywhere(spec.Row{Want: spec.Silence, MayMove: true})
	s := oldPodRunsOn("ct-udp-never-answered", f,
		spec.Step{
			Name: "b1 takes its place", Do: []spec.Action{Readiness("a1", false), Readiness("b1", true)},
			Rows: f.everywhere(spec.Row{Servers: []string{"b1"}, MayMove: true, Times: 2}),
		},
		spec.Step{
			Name: "a1 again", Do: []spec.Action{Readiness("b1", false), Readiness("a1", true)}, Rows: unanswered,
		},
		spec.Step{
			Name: "no endpoint", Do: []spec.Action{Readiness("a1", false)},
			Rows: f.everywhere(spec.Row{Want: spec.Refused, Times: 2}),
		})
	first := &s.Steps[0]
	first.Name, first.Do = "a1 does not answer", append(first.Do, Mute("a1"))
	first.Rows, first.Check = unanswered, func(ctx context.Context, w spec.World) error {
		sent := len(unanswered) * len(w.Lab().Stack().Families())
		return Eventually(ctx, func(ctx context.Context) error { // a relay takes its time
			if n := Unanswered(ctx, w, "a1"); n != sent {
				return fmt.Errorf("of %d flows, %d have reached a1", sent, n)
			}
			return nil
		})
	}
	return s
}

// udpProxierAway restarts the proxier of n1, first without a change and then with one each time.
func udpProxierAway() spec.Scenario {
	both, last := []string{"a2", "a3"}, spec.Row{Servers: []string{"a3"}, MayMove: true, Times: 2}
	return spec.Scenario{
		ID: "ct-udp-proxier-away", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a2", "n2"), dnsPod("a3", "n3"), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "twenty flows", Rows: manyFlows(spec.Row{Servers: both})},
			{Name: "the proxier of n1 restarts", Do: []spec.Action{Restart("n1")},
				Rows: manyFlows(spec.Row{Servers: both, If: spec.InKernel})},
			{Name: "a2 leaves while it is away", Do: []spec.Action{Restart("n1", Readiness("a2", false))},
				Rows: manyFlows(last)},
			{Name: "the Service is deleted while it is away", Do: []spec.Action{Restart("n1", Delete("Service", "dns"))},
				Rows: manyFlows(spec.Row{Want: spec.NotServed, Times: 2})},
		},
	}
}

// manyUDP is how many Services a proxier finds when it starts.
const manyUDP = 150

// udpStartAmongMany has clients send to Services that come while there is no proxier, the first and the last of many.
func udpStartAmongMany() spec.Scenario {
	var many []store.Object
	for i := range manyUDP {
		many = append(many, Service(fmt.Sprintf("s%d", i), Selecting("dns"), UDPPort(53, 5353), NodePort()))
	}
	flows := func(r spec.Row) (rows []spec.Row) {
		for _, s := range []string{"s0", fmt.Sprintf("s%d", manyUDP-1)} {
			rows = append(rows, flow("c1", spec.ClusterIPOf(s, 53), r), flow("client", spec.NodePortAt("n1", s, 53), r))
		}
		return rows
	}
	sending := spec.Row{If: spec.KernelNAT, Want: spec.Reply | spec.NotServed, Servers: []string{"a1"}}
	return spec.Scenario{
		ID: "ct-udp-start-among-many", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1")},
		Steps: []spec.Step{
			{Name: "the Services come while there is no proxier", Check: func(ctx context.Context, w spec.World) error {
				spec.TryDo(w.ProxierControl("n1").Kill(ctx))
				spec.MustDo(w.Apply(many...))
				return w.During(ctx, flows(sending), func(ctx context.Context, t spec.Traffic) error {
					spec.TryDo(t.Rounds(ctx, 2))
					spec.TryDo(w.ProxierControl("n1").Start(ctx))
					return w.Settle(ctx)
				})
			}},
			{Name: "served", Rows: flows(spec.Row{Servers: []string{"a1"}, Times: 2})},
		},
	}
}
