// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// allocation returns the scenarios of fields by which users choose what a load balancer gets: its class, and the ports
// of nodes.
func allocation() []spec.Scenario {
	return []spec.Scenario{someNodePorts(), class(), requestedHealthPort(), noHealthPort()}
}

// someNodePorts has a Service that allocates no NodePorts by itself, and asks for one for one of its ports. Then it
// gives that up.
func someNodePorts() spec.Scenario {
	const nodePort, other = 30017, 30018
	ip := LoadBalancerIP(160)
	served := append(FromEach(spec.Row{To: ip, Servers: []string{"a2"}, Port: 8080}, "client", "c1"),
		FromEach(spec.Row{To: spec.AddrAt(ip.V4, ip.V6, 81), Servers: []string{"a2"}, Port: 9090}, "client", "c1")...)
	allocate := func(yes bool) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = &yes }
	}
	at := func(number uint16, row spec.Row) spec.Row {
		row.From, row.To = "client", spec.HostAt("n1", number)
		return row
	}
	first, second := spec.Row{Servers: []string{"a2"}, Port: 8080}, spec.Row{Servers: []string{"a2"}, Port: 9090}
	none := spec.Row{Want: spec.Refused}
	return spec.Scenario{
		ID: "lb-some-nodeports", NodePorts: []uint16{nodePort, other},
		Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", TCP(9090)),
			Service("web", LoadBalancer(), allocate(false), Port(80, 8080), Port(81, 9090), NodePorts(nodePort)),
		},
		Steps: []spec.Step{
			{Name: "one is asked for", Do: IngressViaN1("web", ip.V4, ip.V6),
				Rows: append(served, at(nodePort, first), at(other, none))},
			{Name: "another one is asked for", Do: []spec.Action{Edit("web", NodePorts(0, other))},
				Rows: append(served, at(nodePort, first), at(other, second))},
			{Name: "they stay when allocation is switched", Do: []spec.Action{Edit("web", allocate(true)),
				Edit("web", allocate(false))}, Rows: append(served, at(nodePort, first), at(other, second))},
		},
	}
}

// class has a Service that names the load balancer which is to provide for it. That is nothing to nodes.
func class() spec.Scenario {
	ip := LoadBalancerIP(161)
	return spec.Scenario{
		ID: "lb-class", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"),
			Service("web", LoadBalancer(), func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/lb") }),
		},
		Steps: []spec.Step{{
			Do: IngressViaN1("web", ip.V4, ip.V6),
			Rows: append(FromEach(spec.Row{To: spec.IngressOf("web", 80), Servers: []string{"a2"}}, "client", "c1"),
				spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}),
		}},
	}
}

// requestedHealthPort asks for a health-check port, gives it up and asks for it again. In the end another Service has
// it.
func requestedHealthPort() spec.Scenario {
	const port = 30019
	open, closed := codes{"n1": 200, "n2": 503, "n3": 503}, codes{"n1": 0, "n2": 0, "n3": 0}
	at := func(want codes) Check {
		return func(ctx context.Context, w spec.World) error { return saysAt(ctx, w, port, "/", want) }
	}
	asks := func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, port
	}
	cluster := policy(corev1.ServiceExternalTrafficPolicyCluster)
	return spec.Scenario{
		ID: "hc-requested-port", NodePorts: []uint16{port}, Needs: needs,
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2", App("other")), Service("web", LoadBalancer(), asks)},
		Steps: []spec.Step{
			{Name: "asked for", Check: at(open)},
			{Name: "given up", Do: []spec.Action{cluster}, Check: at(closed)},
			{Name: "asked for again", Do: []spec.Action{Edit("web", asks)}, Check: at(open)},
			{Name: "another Service has it", Do: []spec.Action{cluster, Apply(Service("other", LoadBalancer(), asks))},
				Check: at(codes{"n1": 503, "n2": 200, "n3": 503})},
		},
	}
}

// noHealthPort has a Service of type NodePort with policy Local, which has no health-check port. As one of type
// LoadBalancer it has one.
func noHealthPort() spec.Scenario {
	const port = 30020
	at := func(want codes) Check {
		return func(ctx context.Context, w spec.World) error { return saysAt(ctx, w, port, "/", want) }
	}
	served := []spec.Row{
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
	}
	is := func(kind corev1.ServiceType, health int32) spec.Action {
		return Edit("web", func(s *corev1.Service) { s.Spec.Type, s.Spec.HealthCheckNodePort = kind, health })
	}
	closed := codes{"n1": 0, "n3": 0}
	return spec.Scenario{
		ID: "hc-nodeport-has-none", NodePorts: []uint16{port}, Needs: append([]spec.Feature{spec.NodePort}, needs...),
		Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{
			{Name: "NodePort", Rows: served, Check: at(closed)},
			{Name: "LoadBalancer", Do: []spec.Action{is(corev1.ServiceTypeLoadBalancer, port)}, Rows: served,
				Check: at(codes{"n1": 200, "n3": 503})},
			{Name: "NodePort again", Do: []spec.Action{is(corev1.ServiceTypeNodePort, 0)}, Rows: served, Check: at(closed)},
		},
	}
}
