// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// dnsPod is a backend of the Service dns. All pods of these scenarios run to the end: a flow that is led to the wrong
// one is answered by it.
func dnsPod(name, node string) *corev1.Pod { return Pod(name, node, App("dns"), UDP(5353)) }

// dns is a UDP Service.
func dns(options ...ServiceOption) *corev1.Service {
	return Service("dns", append([]ServiceOption{UDPPort(53, 5353)}, options...)...)
}

// flow is a row of a UDP flow that goes on: one socket, and so one source port.
func flow(from string, to spec.Target, r spec.Row) spec.Row {
	r.From, r.To, r.Proto, r.Conn = from, to, "udp", from+" -> "+to.String()
	return r
}

// flowsToVIPAndNodePort are flows from a pod and a process of a node to the ClusterIP, and from outside to the
// NodePort.
func flowsToVIPAndNodePort(r spec.Row) []spec.Row {
	return []spec.Row{
		flow("c1", spec.ClusterIPOf("dns", 53), r), flow("n1", spec.ClusterIPOf("dns", 53), r),
		flow("client", spec.NodePortAt("n1", "dns", 53), r),
	}
}

// udpEndpointRemoved allows datagrams to get lost until every node is programmed, but none after that, and none twice.
func udpEndpointRemoved() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-endpoint-removed",
		Needs: []spec.Feature{
			spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.ITPLocal,
		},
		Given: []store.Object{
			Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("b1", "n1"),
			dns(LoadBalancer()), Service("near", Selecting("dns"), UDPPort(53, 5353), ITPLocal()),
		},
		Steps: []spec.Step{
			{
				Name: "a1 alone", Do: []spec.Action{
					Ingress("dns", "203.0.113.202", "2001:db8:113::202"), RouteVia("client", "203.0.113.202", "2001:db8:113::202",
						"n1"),
					Readiness("b1", false),
				},
				Rows: flowsEverywhere(spec.Row{Servers: []string{"a1"}}),
			},
			{Name: "b1 takes its place while two of them send", Check: During(sending(),
				func(ctx context.Context, w spec.World, _ spec.Traffic) {
					RunActions(ctx, w, Readiness("a1", false), Readiness("b1", true))
					spec.TryDo(w.Settle(ctx))
				})},
			{Name: "all have moved", Rows: flowsEverywhere(spec.Row{Servers: []string{"b1"}, MayMove: true, Times: 2})},
		},
	}
}

// sending returns rows of flows that continue during the change. A relay process may then lose datagrams or answer
// after the fence. A probe cannot distinguish the two in time.
func sending() []spec.Row {
	r := spec.Row{If: spec.KernelNAT, Want: spec.Reply | spec.NotServed, Servers: []string{"a1", "b1"}, MayMove: true}
	return []spec.Row{flow("c1", spec.ClusterIPOf("dns", 53), r), flow("client", spec.NodePortAt("n1", "dns", 53), r)}
}

func flowsEverywhere(r spec.Row) []spec.Row {
	return append(flowsToVIPAndNodePort(r), flow("client", spec.IngressOf("dns", 53), r),
		flow("c1", spec.ClusterIPOf("near", 53), r))
}

// udpZeroToOne has the Service made again at the address that the client has been sending to: what is allocated depends
// on names. Until then the flow is tracked without translation, on its way to the router or to a closed port of the
// node.
func udpZeroToOne() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-zero-to-one", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "the Service's addresses are known", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: []string{"a1"}},
			}},
			{Name: "the Service is gone", Do: []spec.Action{Delete("Service", "dns")},
				Rows: flowsToVIPAndNodePort(spec.Row{Want: spec.NotServed})},
			{Name: "it is back", Do: []spec.Action{Apply(dns(NodePort()))},
				Rows: flowsToVIPAndNodePort(spec.Row{Servers: []string{"a1"}, Times: 2})},
		},
	}
}

func udpUnreadyThenReady() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-unready-then-ready", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "not ready", Do: []spec.Action{Readiness("a1", false)},
				Rows: flowsToVIPAndNodePort(spec.Row{Want: spec.Refused, Times: 3})},
			{Name: "ready", Do: []spec.Action{Readiness("a1", true)},
				Rows: flowsToVIPAndNodePort(spec.Row{Servers: []string{"a1"}, Times: 3})},
		},
	}
}

func udpTargetPortChange() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-targetport-change", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Pod("a1", "n1", App("dns"), UDP(5353), UDP(5454)), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "target port 5353", Rows: flowsToVIPAndNodePort(spec.Row{Servers: []string{"a1"}, Port: 5353})},
			{
				Name: "target port 5454",
				Do:   []spec.Action{Edit("dns", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt(5454) })},
				Rows: flowsToVIPAndNodePort(spec.Row{Servers: []string{"a1"}, Port: 5454, Times: 2}),
			},
		},
	}
}

// frontends are addresses of the Service dns in a scenario whose old pod runs on.
type frontends struct {
	ingress, external pair
	nodePort          uint16
}

// pair is an address in each family.
type pair struct{ v4, v6 string }

// outside returns the n-th pair of addresses that the client outside can route to a node.
func outside(n int) pair {
	return pair{fmt.Sprintf("203.0.113.%d", n), fmt.Sprintf("2001:db8:113::%d", n)}
}

// toAddresses are flows to the addresses.
func (f frontends) toAddresses(r spec.Row) []spec.Row {
	return []spec.Row{
		flow("client", spec.AddrAt(f.ingress.v4, f.ingress.v6, 53), r),
		flow("client", spec.AddrAt(f.external.v4, f.external.v6, 53), r),
	}
}

// flows are flows to the addresses and the NodePort.
func (f frontends) flows(r spec.Row) []spec.Row {
	return append(f.toAddresses(r), flow("client", spec.HostAt("n1", f.nodePort), r))
}

// flowsToVIP are flows to the ClusterIP of dns.
func flowsToVIP(r spec.Row) []spec.Row {
	return []spec.Row{flow("c1", spec.ClusterIPRaw("dns", 53), r), flow("n1", spec.ClusterIPRaw("dns", 53), r)}
}

// everywhere are flows to the addresses, the NodePort and the ClusterIP.
func (f frontends) everywhere(r spec.Row) []spec.Row { return append(f.flows(r), flowsToVIP(r)...) }

// service returns the Service dns at these frontends.
func (f frontends) service(options ...ServiceOption) *corev1.Service {
	return dns(append([]ServiceOption{
		LoadBalancer(), ExternalIPs(f.external.v4, f.external.v6), NodePorts(int32(f.nodePort)),
	}, options...)...)
}

// given returns the Service and its pods.
func (f frontends) given(options ...ServiceOption) []store.Object {
	return []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("b1", "n1"), f.service(options...)}
}

// begun begins flows from fixed ports to a1 at every kind of frontend. first makes a1 the only endpoint.
func (f frontends) begun(first spec.Action) spec.Step {
	return spec.Step{
		Name: "a1 answers", Do: []spec.Action{
			first, Ingress("dns", f.ingress.v4, f.ingress.v6),
			RouteVia("client", f.ingress.v4, f.ingress.v6, "n1"), RouteVia("client", f.external.v4, f.external.v6, "n1"),
		},
		Rows: f.everywhere(spec.Row{Servers: []string{"a1"}}),
	}
}

// oldPodRunsOn begins with flows from fixed ports to a1 at every kind of frontend. The process of a1 never ends.
func oldPodRunsOn(id string, f frontends, then ...spec.Step) spec.Scenario {
	return spec.Scenario{
		ID: id, NodePorts: []uint16{f.nodePort},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.ExternalIPs},
		Given: f.given(), Steps: append([]spec.Step{f.begun(Readiness("b1", false))}, then...),
	}
}

func udpNoEndpoints() spec.Scenario {
	f := frontends{outside(205), outside(206), 30064}
	refused, moved := spec.Row{Want: spec.Refused, Times: 2}, spec.Row{Servers: []string{"b1"}, MayMove: true, Times: 2}
	return oldPodRunsOn("ct-udp-no-endpoints-flushed", f,
		spec.Step{
			Name: "no endpoint", Do: []spec.Action{Readiness("a1", false)},
			Rows: f.everywhere(refused),
		},
		spec.Step{
			Name: "b1", Do: []spec.Action{Readiness("b1", true)},
			Rows: f.everywhere(moved),
		})
}

func udpServiceDeleted() spec.Scenario {
	f := frontends{outside(207), outside(208), 30065}
	unserved := spec.Row{Want: spec.NotServed, Times: 2}
	return oldPodRunsOn("ct-udp-service-deleted", f, spec.Step{
		Name: "the Service is deleted", Do: []spec.Action{Delete("Service", "dns")},
		Rows: f.everywhere(unserved),
	})
}

func udpFrontendRemoved() spec.Scenario {
	f, next := frontends{outside(209), outside(210), 30066}, outside(211)
	s := oldPodRunsOn("ct-udp-frontend-removed", f, spec.Step{
		Name: "other frontends", Do: []spec.Action{
			Edit("dns", NodePorts(30067)), Edit("dns", ExternalIPs()), Ingress("dns", next.v4, next.v6),
		},
		Rows: append(f.flows(spec.Row{Want: spec.NotServed, Times: 2}), flowsToVIP(spec.Row{Servers: []string{"a1"}})...),
	})
	s.NodePorts = append(s.NodePorts, 30067)
	return s
}

// udpFrontendOnlyChange moves frontends of a Service to where the client has been sending to. Its endpoints stay, and
// so do those of all others: it has a cluster of its own, because a proxier may look for stale flows of all Services at
// once.
func udpFrontendOnlyChange() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-frontend-only-change", NodePorts: []uint16{30056, 30057},
		Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs:   []spec.Feature{spec.NodePort, spec.LoadBalancer},
		Given:   []store.Object{dnsPod("a1", "n1"), dns(LoadBalancer(), NodePorts(30056))},
		Steps: []spec.Step{
			{
				Name: "at other frontends", Do: []spec.Action{
					Ingress("dns", "203.0.113.203", "2001:db8:113::203"), RouteVia("client", "203.0.113.204", "2001:db8:113::204",
						"n1"),
				},
				Rows: toNewFrontends(spec.Row{Want: spec.NotServed}),
			},
			{
				Name: "where the client sends to", Do: []spec.Action{
					Edit("dns", NodePorts(30057)), Ingress("dns", "203.0.113.204", "2001:db8:113::204"),
				},
				Rows: toNewFrontends(spec.Row{Servers: []string{"a1"}, Times: 2}),
			},
		},
	}
}

func toNewFrontends(r spec.Row) []spec.Row {
	return []spec.Row{
		flow("client", spec.HostAt("n1", 30057), r),
		flow("client", spec.AddrAt("203.0.113.204", "2001:db8:113::204", 53), r),
	}
}

// spared is how many flows are watched where a cut one would find back to its pod with a chance of 1/2: that all of
// them do has one below 1e-6.
const spared = 20

func udpUntouchedFlows() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-untouched-flows",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal,
			spec.KernelNAT},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a2", "n2"), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "a2 alone", Rows: sparedFlows(spec.Row{})},
			{Name: "b1 joins", Do: []spec.Action{Apply(dnsPod("b1", "n1"))}, Rows: append(sparedFlows(spec.Row{}),
				spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: []string{"a2", "b1"}, Even: true},
			)},
			{Name: "new flows stay on the node", Do: []spec.Action{Edit("dns", ETPLocal()), Edit("dns", ITPLocal())},
				Rows: append(sparedFlows(spec.Row{If: spec.UDPDrains}),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Times: 3, Servers: []string{"b1"}},
				)},
			{Name: "a2 terminates and serves", Do: []spec.Action{Terminate("a2", true)},
				Rows: append(sparedFlows(spec.Row{If: spec.UDPDrains}),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Times: 3, Servers: []string{"b1"}},
				)},
		},
	}
}

// sparedFlows are flows to a2.
func sparedFlows(r spec.Row) []spec.Row {
	r.Servers = []string{"a2"}
	return manyFlows(r)
}

// manyFlows are flows to the ClusterIP and the NodePort.
func manyFlows(r spec.Row) []spec.Row {
	var rows []spec.Row
	for i := range spared / 2 {
		rows = append(rows, flow("c1", spec.ClusterIPOf("dns", 53), r), flow("client", spec.NodePortAt("n1", "dns", 53), r))
		for j := range 2 {
			rows[2*i+j].Conn += fmt.Sprintf(" #%d", i)
		}
	}
	return rows
}

// elsewhere is a flow to a server outside whose port is the NodePort of a Service.
func elsewhere() spec.Row {
	return flow("c1", spec.HostAt("client", 30047), spec.Row{Servers: []string{"client"}, SourcePort: 61520})
}

// cleanupCollateral has a pod talk to a server outside whose port is the NodePort of a Service.
func cleanupCollateral() spec.Scenario {
	return spec.Scenario{
		ID: "ct-cleanup-collateral", NodePorts: []uint16{30047},
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("b1", "n1"), dns(NodePort(), NodePorts(30047))},
		Steps: []spec.Step{
			{Name: "a flow to the NodePort, one to the same port elsewhere",
				Do: []spec.Action{Readiness("b1", false), Serve("client", "udp", 30047)}, Rows: []spec.Row{
					flow("client", spec.HostAt("n1", 30047), spec.Row{Servers: []string{"a1"}}),
					elsewhere(),
				}},
			{Name: "the Service's endpoint changes", Do: []spec.Action{Readiness("a1", false), Readiness("b1", true)},
				Check: flowsElsewhereAreTracked},
			{Name: "the flow to the NodePort has moved, the other one goes on", Rows: []spec.Row{
				flow("client", spec.HostAt("n1", 30047), spec.Row{Servers: []string{"b1"}, MayMove: true}),
				elsewhere(),
			}},
		},
	}
}

// flowsElsewhereAreTracked looks at the entry before another packet would make a new one.
var flowsElsewhereAreTracked = EachFamily(func(_ context.Context, w spec.World, family lab.Family) error {
	if _, tracked := FlowOf(w, "n1", elsewhere(), family); !tracked {
		return fmt.Errorf("n1 no longer tracks the %s flow to %s, which is none of its Services", family,
			elsewhere().To)
	}
	return nil
})

func tcpNotFlushed() spec.Scenario {
	return spec.Scenario{
		ID: "ct-tcp-sctp-not-flushed", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort()),
		},
		Steps: []spec.Step{
			{Name: "a1 alone", Do: []spec.Action{Readiness("a2", false)}, Rows: openConnections()},
			{Name: "a2 in its place", Do: []spec.Action{Readiness("a1", false), Readiness("a2", true)},
				Rows: append(leftOpen(),
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a2"}},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, Servers: []string{"a2"}},
				)},
			{Name: "none", Do: []spec.Action{Readiness("a2", false)}, Rows: append(leftOpen(),
				WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)})...,
			)},
		},
	}
}

// leftOpen are the connections after a1 has left.
func leftOpen() []spec.Row {
	rows := openConnections()
	for i := range rows {
		rows[i].Want, rows[i].Choice = eitherWay, "an open connection to an endpoint that has left"
	}
	return rows
}

// eitherWay is what an open connection may come to where Kubernetes does not say so.
const eitherWay = spec.Reply | spec.Reset | spec.Silence | spec.Refused

// openConnections are TCP connections to a1 that stay open.
func openConnections() []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "from a pod", Servers: []string{"a1"}},
		{From: "n1", To: spec.ClusterIPOf("web", 80), Conn: "from a node", Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "from outside", Servers: []string{"a1"}},
	}
}

func nothingOnRejectDrop() spec.Scenario {
	return spec.Scenario{
		ID:    "ct-nothing-on-reject-drop",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ETPLocal()),
			Service("empty", Port(80, 8080), UDPPort(80, 8080), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "an accepted connection leaves an entry", Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n2", "web", 80), Servers: []string{"a2"}, Flow: spec.TranslatedOn("n2")},
			}},
			{Name: "no other does", Rows: turnedAway()},
		},
	}
}

// turnedAway are connections through n1 that it refuses, and one that it drops.
func turnedAway() []spec.Row {
	rows := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("empty", 80), Want: spec.Refused},
		{From: "c1", To: spec.ClusterIPOf("empty", 80), Proto: "udp", Want: spec.Refused},
		{From: "n1", To: spec.ClusterIPOf("empty", 80), Want: spec.Refused},
		{From: "client", To: spec.NodePortAt("n1", "empty", 80), Want: spec.Refused},
		{From: "client", To: spec.NodePortAt("n1", "empty", 80), Proto: "udp", Want: spec.Refused},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
	}
	for i := range rows {
		rows[i].Flow = spec.UntrackedOn("n1")
	}
	return rows
}
