// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// state is a state of a Service: the options that make one so, and the rows that must hold for every Service in it.
type state struct {
	name    string
	options []ServiceOption
	rows    func(service string) []spec.Row
	// gone are rows about what the Service had in an earlier state.
	gone []spec.Row
}

// becoming returns a scenario in which the Service "changed" passes through states. In each of them the same rows must
// hold for a Service that is new: for "changed" itself in the first state, and for another Service that is made in each
// state that is not one of those before. Services of type LoadBalancer get addresses in the order in which they come.
func becoming(id string, needs []spec.Feature, pods []store.Object, addresses []spec.Target,
	states ...state) spec.Scenario {
	scenario := spec.Scenario{ID: id, Needs: needs, Given: pods}
	for i, s := range states {
		step, names := spec.Step{Name: s.name}, []string{"changed"}
		if i == 0 {
			step.Do = []spec.Action{Apply(Service("changed", s.options...))}
		} else {
			step.Do = []spec.Action{Edit("changed", turnInto(s.options...))}
			if !s.among(states[:i]) {
				fresh := fmt.Sprintf("new-%d", i)
				step.Do, names = append(step.Do, Apply(Service(fresh, s.options...))), append(names, fresh)
			}
		}
		for _, name := range names {
			step.Rows = append(step.Rows, s.rows(name)...)
			if Service(name, s.options...).Spec.Type == corev1.ServiceTypeLoadBalancer {
				step.Do = append(step.Do, IngressViaN1(name, addresses[0].V4, addresses[0].V6)...)
				addresses = addresses[1:]
			}
		}
		step.Rows = append(step.Rows, s.gone...)
		scenario.Steps = append(scenario.Steps, step)
	}
	return scenario
}

// among reports whether a Service in one of the others is the same.
func (s state) among(others []state) bool {
	return slices.ContainsFunc(others, func(o state) bool {
		return reflect.DeepEqual(Service("", o.options...), Service("", s.options...))
	})
}

// turnInto gives a Service the spec that the options make. What is allocated and not named stays, as with kubectl
// replace.
func turnInto(options ...ServiceOption) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec = Service(s.Name, options...).Spec }
}

// changed returns the scenarios of changes of a live Service. Each leaves what a Service that was made so has.
func changed() []spec.Scenario {
	return []spec.Scenario{changedType(), changedPolicies(), changedAffinity(), changedPorts(), changedProtocol(),
		changedEverything()}
}

// changedType has a NodePort of its own, which is refused when the Service has given it up.
func changedType() spec.Scenario {
	const nodePort = 30010
	at := func(from string, to spec.Target) spec.Row {
		return spec.Row{From: from, To: to, Servers: []string{"a2"}}
	}
	clusterIP := func(service string) []spec.Row {
		return []spec.Row{at("c1", spec.ClusterIPOf(service, 80)), at("n1", spec.ClusterIPOf(service, 80))}
	}
	nodePorts := func(service string) []spec.Row {
		return append(clusterIP(service), at("client", spec.NodePortAt("n1", service, 80)))
	}
	balanced := func(service string) []spec.Row {
		return append(nodePorts(service), at("client", spec.IngressOf(service, 80)), at("c1", spec.IngressOf(service, 80)))
	}
	addresses := []spec.Target{LoadBalancerIP(145), LoadBalancerIP(146)}
	former := spec.Row{From: "client", To: addresses[0], Want: spec.NotServed}
	web := Selecting("web")
	s := becoming("svc-change-type", []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer},
		[]store.Object{Pod("c1", "n1"), Backend("a2", "n2")}, addresses,
		state{name: "ClusterIP", options: []ServiceOption{web}, rows: clusterIP},
		state{name: "NodePort", options: []ServiceOption{web, NodePort()}, rows: nodePorts},
		state{name: "LoadBalancer", options: []ServiceOption{web, LoadBalancer()}, rows: balanced},
		state{name: "NodePort again", options: []ServiceOption{web, NodePort()}, rows: nodePorts, gone: []spec.Row{former}},
		state{name: "ClusterIP again", options: []ServiceOption{web}, rows: clusterIP, gone: []spec.Row{former,
			{From: "client", To: spec.HostAt("n1", nodePort), Want: spec.Refused}}})
	s.NodePorts = []uint16{nodePort}
	s.Steps[1].Do = append(s.Steps[1].Do, Edit("changed", NodePorts(nodePort)))
	return s
}

// changedPolicies turns both traffic policies at once. n1 and n2 have an endpoint each, n3 has none.
func changedPolicies() spec.Scenario {
	both, near := []string{"a1", "a2"}, []string{"a1"}
	at := func(from string, to spec.Target, local bool, otherwise spec.Row) spec.Row {
		row := spec.Row{To: to, Servers: both, Even: true}
		if local {
			row = otherwise
		}
		row.From, row.To = from, to
		return row
	}
	rows := func(external, internal bool) func(string) []spec.Row {
		return func(service string) []spec.Row {
			return []spec.Row{
				at("c1", spec.ClusterIPOf(service, 80), internal, spec.Row{Servers: near, Times: 22}),
				at("c3", spec.ClusterIPOf(service, 80), internal, spec.Row{Want: DropOrReject}),
				at("client", spec.NodePortAt("n1", service, 80), external,
					spec.Row{Servers: near, Times: 22, SeenAs: spec.ClientAddr()}),
				at("client", spec.NodePortAt("n3", service, 80), external, spec.Row{Want: spec.Silence}),
			}
		}
	}
	options := func(more ...ServiceOption) []ServiceOption {
		return append([]ServiceOption{Selecting("web"), NodePort()}, more...)
	}
	return becoming("svc-change-policies",
		[]spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal, spec.SourceAddress},
		[]store.Object{Pod("c1", "n1"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2")}, nil,
		state{name: "Cluster", options: options(), rows: rows(false, false)},
		state{name: "both Local", options: options(ETPLocal(), ITPLocal()), rows: rows(true, true)},
		state{name: "one each", options: options(ETPLocal()), rows: rows(true, false)},
		state{name: "the other way round", options: options(ITPLocal()), rows: rows(false, true)},
		state{name: "Cluster again", options: options(), rows: rows(false, false)})
}

// changedAffinity changes the affinity together with the policy, so that the endpoints to remember are others.
func changedAffinity() spec.Scenario {
	rows := func(sticky bool, servers ...string) func(string) []spec.Row {
		return func(service string) []spec.Row {
			inside := spec.Row{From: "c1", To: spec.ClusterIPOf(service, 80), Servers: []string{"a1", "b1", "a2"},
				Sticky: sticky, Even: !sticky}
			outside := spec.Row{From: "client", To: spec.NodePortAt("n1", service, 80), Servers: servers, Sticky: sticky,
				Even: !sticky}
			return []spec.Row{inside, outside}
		}
	}
	options := func(more ...ServiceOption) []ServiceOption {
		return append([]ServiceOption{Selecting("web"), NodePort()}, more...)
	}
	return becoming("svc-change-affinity-and-policy",
		[]spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.SessionAffinity},
		[]store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2")}, nil,
		state{name: "no affinity, Cluster", options: options(), rows: rows(false, "a1", "b1", "a2")},
		state{name: "ClientIP, Local", options: options(Affinity(), ETPLocal()), rows: rows(true, "a1", "b1")},
		state{name: "ClientIP, Cluster", options: options(Affinity()), rows: rows(true, "a1", "b1", "a2")},
		state{name: "no affinity, Local", options: options(ETPLocal()), rows: rows(false, "a1", "b1")})
}

// tcp returns a TCP port with a name.
func tcp(name string, number int32, target int) ServiceOption {
	return ServicePort(name, corev1.ProtocolTCP, number, target)
}

// changedPorts exchanges the numbers of two ports, then their nodePorts, then their names.
func changedPorts() spec.Scenario {
	rows := func(first, second uint16) func(string) []spec.Row {
		return func(service string) []spec.Row {
			var rows []spec.Row
			for number, target := range map[uint16]uint16{80: first, 81: second} {
				rows = append(rows,
					spec.Row{From: "c1", To: spec.ClusterIPOf(service, number), Servers: []string{"a2"}, Port: target},
					spec.Row{From: "client", To: spec.NodePortAt("n1", service, number), Servers: []string{"a2"}, Port: target})
			}
			return rows
		}
	}
	options := func(more ...ServiceOption) []ServiceOption {
		return append([]ServiceOption{Selecting("web"), NodePort()}, more...)
	}
	s := becoming("svc-change-ports-exchanged", []spec.Feature{spec.ClusterIP, spec.NodePort},
		[]store.Object{Pod("c1", "n1"), Backend("a2", "n2", TCP(9090))}, nil,
		state{name: "two ports", options: options(tcp("a", 80, 8080), tcp("b", 81, 9090)), rows: rows(8080, 9090)},
		state{name: "numbers", options: options(tcp("a", 81, 8080), tcp("b", 80, 9090)), rows: rows(9090, 8080)},
		state{name: "nodePorts", options: options(tcp("a", 81, 8080), tcp("b", 80, 9090)), rows: rows(9090, 8080)},
		state{name: "names", options: options(tcp("b", 81, 8080), tcp("a", 80, 9090)), rows: rows(9090, 8080)})
	s.NodePorts = []uint16{30011, 30012}
	s.Steps[0].Do = append(s.Steps[0].Do, Edit("changed", NodePorts(30011, 30012)))
	s.Steps[2].Do = append(s.Steps[2].Do, Edit("changed", NodePorts(30012, 30011)))
	return s
}

// changedProtocol makes a TCP port a UDP port and back, with the same name, number and nodePort.
func changedProtocol() spec.Scenario {
	const nodePort = 30013
	rows := func(open, shut string, target uint16) func(string) []spec.Row {
		return func(service string) []spec.Row {
			return []spec.Row{
				{From: "c1", To: spec.ClusterIPOf(service, 80), Proto: open, Servers: []string{"a2"}, Port: target},
				{From: "client", To: spec.NodePortAt("n1", service, 80), Proto: open, Servers: []string{"a2"}, Port: target},
				{From: "c1", To: spec.ClusterIPRaw(service, 80), Proto: shut, Want: spec.NotServed},
			}
		}
	}
	shut := func(proto string) []spec.Row {
		return []spec.Row{{From: "client", To: spec.HostAt("n1", nodePort), Proto: proto, Want: spec.Refused}}
	}
	asTCP := []ServiceOption{Selecting("web"), NodePort(), ServicePort("p", corev1.ProtocolTCP, 80, 8080)}
	asUDP := []ServiceOption{Selecting("web"), NodePort(), ServicePort("p", corev1.ProtocolUDP, 80, 8081)}
	s := becoming("svc-change-protocol", []spec.Feature{spec.ClusterIP, spec.NodePort},
		[]store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8081))}, nil,
		state{name: "TCP", options: asTCP, rows: rows("tcp", "udp", 8080), gone: shut("udp")},
		state{name: "UDP", options: asUDP, rows: rows("udp", "tcp", 8081), gone: shut("tcp")},
		state{name: "TCP again", options: asTCP, rows: rows("tcp", "udp", 8080), gone: shut("udp")})
	s.NodePorts = []uint16{nodePort}
	s.Steps[0].Do = append(s.Steps[0].Do, Edit("changed", NodePorts(nodePort)))
	return s
}

// changedEverything changes type, ports, policies, affinity and source ranges in one update, and back in another one.
func changedEverything() spec.Scenario {
	all, near := []string{"a1", "b1", "a2"}, []string{"a1", "b1"}
	plain := func(service string) []spec.Row {
		return []spec.Row{
			{From: "c3", To: spec.ClusterIPOf(service, 80), Servers: all, Even: true},
			{From: "c1", To: spec.ClusterIPOf(service, 80), Servers: all, Even: true},
			{From: "c3", To: spec.ClusterIPRaw(service, 81), Want: spec.NotServed},
			{From: "c3", To: spec.ClusterIPRaw(service, 81), Proto: "udp", Want: spec.NotServed},
		}
	}
	particular := func(service string) []spec.Row {
		return []spec.Row{
			{From: "c1", To: spec.ClusterIPOf(service, 81), Servers: near, Sticky: true},
			{From: "c1", To: spec.ClusterIPOf(service, 81), Proto: "udp", Servers: near, Sticky: true},
			{From: "c3", To: spec.ClusterIPOf(service, 81), Want: DropOrReject},
			{From: "c1", To: spec.ClusterIPRaw(service, 80), Want: spec.NotServed},
			{From: "client", To: spec.IngressOf(service, 81), Servers: near, Sticky: true, SeenAs: spec.ClientAddr()},
			{From: "client", Source: OtherClientAddr, To: spec.IngressOf(service, 81),
				Want: DropOrReject},
			{From: "client", To: spec.NodePortAt("n3", service, 81), Want: spec.Silence},
		}
	}
	options := []ServiceOption{
		Selecting("web"), LoadBalancer(), ETPLocal(), ITPLocal(), Affinity(), tcp("a", 81, 8080),
		ServicePort("b", corev1.ProtocolUDP, 81, 8081), SourceRanges(ClientRange4, ClientRange6),
	}
	addresses := []spec.Target{LoadBalancerIP(147), LoadBalancerIP(148)}
	addresses[0].Port = 81
	return becoming("svc-change-everything", []spec.Feature{spec.ClusterIP, spec.LoadBalancer, spec.ETPLocal,
		spec.ITPLocal, spec.SessionAffinity, spec.SourceRanges, spec.SourceAddress},
		[]store.Object{Pod("c1", "n1"), Pod("c3", "n3"), Backend("a1", "n1", UDP(8081)), Backend("b1", "n1", UDP(8081)),
			Backend("a2", "n2", UDP(8081))}, addresses,
		state{name: "plain", options: []ServiceOption{Selecting("web")}, rows: plain},
		state{name: "everything", options: options, rows: particular},
		state{name: "plain again", options: []ServiceOption{Selecting("web")}, rows: plain, gone: []spec.Row{
			{From: "client", To: addresses[0], Want: spec.NotServed},
		}})
}
