// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAllocationRules(t *testing.T) {
	s := newTestStore(t, Config{})
	nodePort := func(port int32) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Type, svc.Spec.Ports[0].NodePort = "NodePort", port }
	}
	apply(t, s, newService("auto", nodePort(0)), newService("chosen", nodePort(31380)))
	auto, chosen := get[*corev1.Service](t, s, "auto"), get[*corev1.Service](t, s, "chosen")
	if p := chosen.Spec.Ports[0].NodePort; p != 31380 {
		t.Errorf("asked for 31380, got %d", p)
	}
	port, ip := auto.Spec.Ports[0].NodePort, auto.Spec.ClusterIP

	// A manifest applied again keeps what was allocated, and changes nothing at all.
	revision := s.Snapshot().Revision
	apply(t, s, newService("auto", nodePort(0)))
	if s.Snapshot().Revision != revision {
		t.Error("an unchanged manifest made a new revision")
	}
	// Released by a change of type, and free for others at once.
	if err := Update(s, "default", "auto", func(svc *corev1.Service) { svc.Spec.Type = "ClusterIP" }); err != nil {
		t.Fatal(err)
	}
	svc := get[*corev1.Service](t, s, "auto")
	if svc.Spec.Ports[0].NodePort != 0 || svc.Spec.ExternalTrafficPolicy != "" || svc.Spec.ClusterIP != ip ||
		svc.Generation != 2 {
		t.Errorf("after the change of type: %+v, generation %d", svc.Spec, svc.Generation)
	}
	apply(t, s, newService("thief", nodePort(port)))
	// Released by deletion.
	if err := s.Delete("Service", "default", "chosen"); err != nil {
		t.Fatal(err)
	}
	apply(t, s, newService("heir", nodePort(31380),
		func(svc *corev1.Service) { svc.Spec.ClusterIP = chosen.Spec.ClusterIP }))
	// Addresses do not change.
	err := Update(s, "default", "heir", func(svc *corev1.Service) {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.99", []string{"10.96.0.99"}
	})
	if err == nil || !strings.Contains(err.Error(),
		"spec.clusterIPs[0]: Invalid value: \"10.96.0.99\": may not change once set") {
		t.Errorf("change of clusterIP: %v", err)
	}
	// One call can ask for a port and take a free one, in any order.
	for i := range 200 {
		apply(t, s, newService(fmt.Sprintf("greedy-%d", i), nodePort(0)))
	}
}

func TestTwoProtocolsShareANodePort(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("dns", func(svc *corev1.Service) {
		svc.Spec.Type = "NodePort"
		svc.Spec.Ports = []corev1.ServicePort{{Name: "udp", Port: 53, Protocol: "UDP"},
			{Name: "tcp", Port: 53, Protocol: "TCP"}, {Name: "web", Port: 80}}
	}))
	p := get[*corev1.Service](t, s, "dns").Spec.Ports
	if p[0].NodePort == 0 || p[0].NodePort != p[1].NodePort || p[2].NodePort == p[0].NodePort || p[2].NodePort == 0 {
		t.Errorf("nodePorts %d/udp %d/tcp %d/web", p[0].NodePort, p[1].NodePort, p[2].NodePort)
	}
}

// A port that is given the number of another keeps it, whatever that one was given before.
func TestNodePortsMoveBetweenPorts(t *testing.T) {
	s := newTestStore(t, Config{})
	ports := func(ports ...corev1.ServicePort) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Type, svc.Spec.Ports = "NodePort", ports }
	}
	apply(t, s, newService("web", ports(corev1.ServicePort{Name: "a", Port: 80, NodePort: 30001},
		corev1.ServicePort{Name: "b", Port: 81, NodePort: 30002})))
	apply(t, s, newService("web", ports(corev1.ServicePort{Name: "a", Port: 80},
		corev1.ServicePort{Name: "b", Port: 81, NodePort: 30001})))
	p := get[*corev1.Service](t, s, "web").Spec.Ports
	if p[1].NodePort != 30001 || p[0].NodePort == 30001 || p[0].NodePort == 0 {
		t.Errorf("nodePorts %d and %d", p[0].NodePort, p[1].NodePort)
	}
}

func TestLoadBalancerStatus(t *testing.T) {
	s := newTestStore(t, Config{})
	ingress := func(name string) error {
		return UpdateStatus(s, "default", name, func(svc *corev1.Service) {
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		})
	}
	apply(t, s, newService("lb", func(svc *corev1.Service) { svc.Spec.Type = "LoadBalancer" }), newService("plain"))
	if err := ingress("plain"); err == nil || !strings.Contains(err.Error(),
		"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'") {
		t.Errorf("ingress of a ClusterIP: %v", err)
	}
	if err := ingress("lb"); err != nil {
		t.Fatal(err)
	}
	// A manifest knows nothing of the status and leaves it alone, unless the type goes.
	apply(t, s, newService("lb", func(svc *corev1.Service) { svc.Spec.Type, svc.Labels = "LoadBalancer", app("x") }))
	if n := len(get[*corev1.Service](t, s, "lb").Status.LoadBalancer.Ingress); n != 1 {
		t.Errorf("%d ingress points, want 1", n)
	}
	apply(t, s, newService("lb"))
	if n := len(get[*corev1.Service](t, s, "lb").Status.LoadBalancer.Ingress); n != 0 {
		t.Errorf("%d ingress points of a ClusterIP", n)
	}
}

// The health port comes with LoadBalancer and Local, goes with either, and is another port again.
func TestHealthCheckNodePort(t *testing.T) {
	s := newTestStore(t, Config{})
	local := func(svc *corev1.Service) { svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = "LoadBalancer", "Local" }
	apply(t, s, newService("lb", local))
	port := get[*corev1.Service](t, s, "lb").Spec.HealthCheckNodePort
	if !s.NodePorts().Contains(port) {
		t.Fatalf("healthCheckNodePort %d", port)
	}
	apply(t, s, newService("lb", local, func(svc *corev1.Service) { svc.Labels = app("x") }))
	if p := get[*corev1.Service](t, s, "lb").Spec.HealthCheckNodePort; p != port {
		t.Errorf("healthCheckNodePort went from %d to %d", port, p)
	}
	if err := Update(s, "default", "lb", func(svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = "Cluster" }); err != nil {
		t.Fatal(err)
	}
	if p := get[*corev1.Service](t, s, "lb").Spec.HealthCheckNodePort; p != 0 {
		t.Errorf("healthCheckNodePort %d with policy Cluster", p)
	}
	apply(t, s, newService("heir", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = "NodePort",
			port
	}))
	apply(t, s, newService("lb", local))
	if p := get[*corev1.Service](t, s, "lb").Spec.HealthCheckNodePort; p == port || p == 0 {
		t.Errorf("healthCheckNodePort %d, and %d is taken", p, port)
	}
}

func TestLoadBalancerWithoutNodePorts(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("lb", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.AllocateLoadBalancerNodePorts = "LoadBalancer", ptr.To(false)
		svc.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81, NodePort: 30001}}
	}))
	if p := get[*corev1.Service](t, s, "lb").Spec.Ports; p[0].NodePort != 0 || p[1].NodePort != 30001 {
		t.Errorf("nodePorts %d and %d, want none and 30001", p[0].NodePort, p[1].NodePort)
	}
}

func TestRangesRunOut(t *testing.T) {
	s := newTestStore(t, Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")},
		NodePorts: PortRange{30000, 30002}})
	asNodePort := func(svc *corev1.Service) { svc.Spec.Type = "NodePort" }
	apply(t, s, newService("a", asNodePort), newService("b", asNodePort), newService("c", asNodePort))
	err := s.Apply(newService("d", asNodePort))
	if err == nil || !strings.Contains(err.Error(), "no free port is left in 30000-30002") {
		t.Errorf("a fourth NodePort of three: %v", err)
	}
	apply(t, s, newService("d"), newService("e"), newService("f"))
	err = s.Apply(newService("g"))
	if err == nil || !strings.Contains(err.Error(), "no free address is left in 10.0.0.0/29") {
		t.Errorf("a seventh ClusterIP of six: %v", err)
	}
}
