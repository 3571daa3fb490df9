package kube

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
)

func TestServiceDefaults(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("web", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81, TargetPort: intstr.FromString("http")}}
	}))
	svc := get[*corev1.Service](t, s, "web")
	checkSame(t, "spec", svc.Spec, corev1.ServiceSpec{
		Type:      "ClusterIP",
		ClusterIP: svc.Spec.ClusterIP, ClusterIPs: []string{svc.Spec.ClusterIP},
		IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		Selector: app("web"), SessionAffinity: "None",
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		Ports: []corev1.ServicePort{
			{Name: "a", Protocol: "TCP", Port: 80, TargetPort: intstr.FromInt32(80)},
			{Name: "b", Protocol: "TCP", Port: 81, TargetPort: intstr.FromString("http")},
		},
	})
	if !netip.MustParsePrefix("10.96.0.0/16").Contains(netip.MustParseAddr(svc.Spec.ClusterIP)) {
		t.Errorf("clusterIP %s is not in 10.96.0.0/16", svc.Spec.ClusterIP)
	}
	if svc.UID == "" || svc.ResourceVersion == "" || svc.Generation != 1 || !svc.CreationTimestamp.Time.Equal(epoch) || svc.Kind != "Service" {
		t.Errorf("metadata %+v", svc.ObjectMeta)
	}

	apply(t, s, newService("lb", func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}))
	lb := get[*corev1.Service](t, s, "lb").Spec
	if *lb.SessionAffinityConfig.ClientIP.TimeoutSeconds != 10800 || !*lb.AllocateLoadBalancerNodePorts {
		t.Errorf("affinity %v, allocateLoadBalancerNodePorts %v", lb.SessionAffinityConfig, lb.AllocateLoadBalancerNodePorts)
	}
	if !s.NodePorts().Contains(lb.Ports[0].NodePort) || !s.NodePorts().Contains(lb.HealthCheckNodePort) || lb.Ports[0].NodePort == lb.HealthCheckNodePort {
		t.Errorf("nodePort %d, healthCheckNodePort %d", lb.Ports[0].NodePort, lb.HealthCheckNodePort)
	}
	if err := UpdateStatus(s, "default", "lb", func(svc *corev1.Service) {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}); err != nil {
		t.Fatal(err)
	}
	if in := get[*corev1.Service](t, s, "lb").Status.LoadBalancer.Ingress[0]; *in.IPMode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("ipMode %s", *in.IPMode)
	}
}

func TestServiceErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.ServiceSpec)
		want   []string
	}{
		{"port 0", func(s *corev1.ServiceSpec) { s.Ports[0].Port = 0; s.Ports[0].TargetPort = intstr.IntOrString{} },
			[]string{"spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		{"port too big, target too", func(s *corev1.ServiceSpec) { s.Ports[0].Port = 65536; s.Ports[0].TargetPort.IntVal = -1 },
			[]string{"spec.ports[0].port: Invalid value: 65536", "spec.ports[0].targetPort: Invalid value: -1"}},
		{"no ports", func(s *corev1.ServiceSpec) { s.Ports = nil }, []string{"spec.ports: Required value"}},
		{"unnamed of two", func(s *corev1.ServiceSpec) { s.Ports = append(s.Ports, corev1.ServicePort{Name: "b", Port: 81}) },
			[]string{"spec.ports[0].name: Required value"}},
		{"duplicate port and name", func(s *corev1.ServiceSpec) { s.Ports[0].Name = "a"; s.Ports = append(s.Ports, s.Ports[0]) },
			[]string{`spec.ports[1].name: Duplicate value: "a"`, `spec.ports[1]: Duplicate value: "port 80/TCP"`}},
		{"protocol", func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = "tcp" },
			[]string{`spec.ports[0].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"`}},
		{"port name", func(s *corev1.ServiceSpec) { s.Ports[0].Name = "Web" }, []string{`spec.ports[0].name: Invalid value: "Web"`}},
		{"target name too long", func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromString("a-very-long-name") },
			[]string{"spec.ports[0].targetPort: Invalid value", "no more than 15"}},
		{"type", func(s *corev1.ServiceSpec) { s.Type = "Clusterip" }, []string{`spec.type: Unsupported value: "Clusterip"`}},
		{"nodePort of a ClusterIP", func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30001 },
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"nodePort out of range", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.Ports[0].NodePort = 80 },
			[]string{"spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"}},
		{"nodePort taken", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.Ports[0].NodePort = 30080 },
			[]string{`spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service "default/taken" has it`}},
		{"nodePort twice", func(s *corev1.ServiceSpec) {
			s.Type = "NodePort"
			s.Ports = []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30001}}
		}, []string{"spec.ports[1].nodePort: Duplicate value: 30001"}},
		{"clusterIP out of range", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.97.0.1" },
			[]string{`spec.clusterIPs[0]: Invalid value: "10.97.0.1": provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16`}},
		{"clusterIP taken", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.10" },
			[]string{`spec.clusterIPs[0]: Invalid value: "10.96.0.10": provided IP is already allocated: Service "default/taken" has it`}},
		{"clusterIP nonsense", func(s *corev1.ServiceSpec) { s.ClusterIP = "none" },
			[]string{`spec.clusterIPs[0]: Invalid value: "none": must be a valid IP address`}},
		{"clusterIPs without clusterIP", func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"10.96.0.11"} },
			[]string{"spec.clusterIPs: Invalid value", "must be empty when `clusterIP` is not specified"}},
		{"clusterIP and clusterIPs differ", func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "10.96.0.12", []string{"10.96.0.11"} },
			[]string{"spec.clusterIPs[0]: Invalid value: \"10.96.0.11\": first value must match `clusterIP`"}},
		{"family that the cluster lacks", func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{"IPv6"} },
			[]string{`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`}},
		{"dual stack required", func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) },
			[]string{`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`}},
		{"headless NodePort", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.ClusterIP = "None" },
			[]string{`spec.clusterIP: Invalid value: "None": may not be 'None' for NodePort services`}},
		{"externalTrafficPolicy of a ClusterIP", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = "Local" },
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{"externalTrafficPolicy nonsense", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.ExternalTrafficPolicy = "local" },
			[]string{`spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`}},
		{"internalTrafficPolicy nonsense", func(s *corev1.ServiceSpec) {
			s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy("Node"))
		}, []string{`spec.internalTrafficPolicy: Unsupported value: "Node"`}},
		{"trafficDistribution nonsense", func(s *corev1.ServiceSpec) { s.TrafficDistribution = ptr.To("Near") },
			[]string{`spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
		{"ExternalName without a name, with an address", func(s *corev1.ServiceSpec) { s.Type = "ExternalName"; s.ClusterIP = "10.96.0.11" },
			[]string{"spec.clusterIPs: Forbidden: may not be set for ExternalName services", "spec.externalName: Required value"}},
		{"affinity", func(s *corev1.ServiceSpec) { s.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: Unsupported value: "Cookie"`}},
		{"affinity for too long", func(s *corev1.ServiceSpec) {
			s.SessionAffinity = "ClientIP"
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](86401)}}
		}, []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than or equal to 86400"}},
		{"source ranges", func(s *corev1.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"10.0.0.0/33", "10.0.0.0/8"} },
			[]string{"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'", `spec.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.0/33"`}},
		{"health port", func(s *corev1.ServiceSpec) { s.Type = "LoadBalancer"; s.HealthCheckNodePort = 30005 },
			[]string{"spec.healthCheckNodePort: Invalid value: 30005: may only be set when"}},
		{"external IPs", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"127.0.0.1", "x", "192.0.2.1"} },
			[]string{`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range`, `spec.externalIPs[1]: Invalid value: "x"`}},
		{"selector", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"a b": "c"} }, []string{`spec.selector: Invalid value: "a b"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{})
			apply(t, s, newService("taken", func(svc *corev1.Service) {
				svc.Spec.Type, svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort = "NodePort", "10.96.0.10", 30080
			}))
			before := s.Snapshot()
			bad := newService("bad", func(svc *corev1.Service) { test.change(&svc.Spec) })
			err := s.Apply(newService("good"), bad)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("error %v, want that it is invalid", err)
			}
			for _, want := range append(test.want, `Service "default/bad" is invalid: `) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant in it: %s", err, want)
				}
			}
			if s.Snapshot() != before {
				t.Error("something was stored")
			}
		})
	}
}

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
	if svc.Spec.Ports[0].NodePort != 0 || svc.Spec.ExternalTrafficPolicy != "" || svc.Spec.ClusterIP != ip || svc.Generation != 2 {
		t.Errorf("after the change of type: %+v, generation %d", svc.Spec, svc.Generation)
	}
	apply(t, s, newService("thief", nodePort(port)))
	// Released by deletion.
	if err := s.Delete("Service", "default", "chosen"); err != nil {
		t.Fatal(err)
	}
	apply(t, s, newService("heir", nodePort(31380), func(svc *corev1.Service) { svc.Spec.ClusterIP = chosen.Spec.ClusterIP }))
	// Addresses do not change.
	err := Update(s, "default", "heir", func(svc *corev1.Service) {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.99", []string{"10.96.0.99"}
	})
	if err == nil || !strings.Contains(err.Error(), "spec.clusterIPs[0]: Invalid value: \"10.96.0.99\": may not change once set") {
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
		svc.Spec.Ports = []corev1.ServicePort{{Name: "udp", Port: 53, Protocol: "UDP"}, {Name: "tcp", Port: 53, Protocol: "TCP"}, {Name: "web", Port: 80}}
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
	apply(t, s, newService("web", ports(corev1.ServicePort{Name: "a", Port: 80, NodePort: 30001}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30002})))
	apply(t, s, newService("web", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30001})))
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
	if err := ingress("plain"); err == nil || !strings.Contains(err.Error(), "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'") {
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
	apply(t, s, newService("heir", func(svc *corev1.Service) { svc.Spec.Type, svc.Spec.Ports[0].NodePort = "NodePort", port }))
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
	s := newTestStore(t, Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}, NodePorts: PortRange{30000, 30002}})
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

func TestFamilies(t *testing.T) {
	const single, prefer, require = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	type spec = corev1.ServiceSpec
	tests := []struct {
		name     string
		stack    lab.Stack
		in       spec
		families []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
		fails    string
	}{
		{"default", lab.Dual, spec{}, []corev1.IPFamily{v4}, single, ""},
		{"default on IPv6", lab.IPv6, spec{}, []corev1.IPFamily{v6}, single, ""},
		{"prefer", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer)}, []corev1.IPFamily{v4, v6}, prefer, ""},
		{"prefer on one family", lab.IPv6, spec{IPFamilyPolicy: ptr.To(prefer)}, []corev1.IPFamily{v6}, prefer, ""},
		{"require, IPv6 first", lab.Dual, spec{IPFamilyPolicy: ptr.To(require), IPFamilies: []corev1.IPFamily{v6}}, []corev1.IPFamily{v6, v4}, require, ""},
		{"one of two", lab.Dual, spec{IPFamilies: []corev1.IPFamily{v6}}, []corev1.IPFamily{v6}, single, ""},
		{"inferred from the address", lab.Dual, spec{ClusterIP: "fd00:10:96::5"}, []corev1.IPFamily{v6}, single, ""},
		{"inferred from both addresses", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer), ClusterIP: "fd00:10:96::5", ClusterIPs: []string{"fd00:10:96::5", "10.96.0.5"}},
			[]corev1.IPFamily{v6, v4}, prefer, ""},
		{"headless", lab.Dual, spec{ClusterIP: "None", Selector: app("x")}, []corev1.IPFamily{v4}, single, ""},
		{"headless without selector", lab.IPv4, spec{ClusterIP: "None"}, []corev1.IPFamily{v4, v6}, require, ""},
		{"two families, one wanted", lab.Dual, spec{IPFamilies: []corev1.IPFamily{v4, v6}}, nil, "",
			"must be 'PreferDualStack' or 'RequireDualStack' when multiple IP families"},
		{"address of the other family", lab.Dual, spec{ClusterIP: "10.96.0.5", IPFamilies: []corev1.IPFamily{v6}}, nil, "",
			"expected an IPv6 value as indicated by `ipFamilies[0]`"},
		{"twice the same", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer), IPFamilies: []corev1.IPFamily{v4, v4}}, nil, "", "spec.ipFamilies[1]: Duplicate value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{Stack: test.stack})
			svc := newService("web")
			test.in.Ports = svc.Spec.Ports
			svc.Spec = test.in
			err := s.Apply(svc)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := get[*corev1.Service](t, s, "web").Spec
			checkSame(t, "families", got.IPFamilies, test.families)
			if *got.IPFamilyPolicy != test.policy {
				t.Errorf("policy %s, want %s", *got.IPFamilyPolicy, test.policy)
			}
			if got.ClusterIP == "None" {
				return
			}
			for i, ip := range got.ClusterIPs {
				if f := familyOf(netip.MustParseAddr(ip)); f != test.families[i] {
					t.Errorf("clusterIPs[%d] %s is %s", i, ip, f)
				}
			}
			if len(got.ClusterIPs) != len(test.families) {
				t.Errorf("clusterIPs %q for families %q", got.ClusterIPs, test.families)
			}
		})
	}
}

func TestFamiliesComeAndGo(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual})
	apply(t, s, newService("web"))
	first := get[*corev1.Service](t, s, "web").Spec.ClusterIP
	setPolicy := func(p corev1.IPFamilyPolicy) []string {
		t.Helper()
		if err := Update(s, "default", "web", func(svc *corev1.Service) { svc.Spec.IPFamilyPolicy = &p }); err != nil {
			t.Fatal(err)
		}
		return get[*corev1.Service](t, s, "web").Spec.ClusterIPs
	}
	both := setPolicy(corev1.IPFamilyPolicyPreferDualStack)
	if len(both) != 2 || both[0] != first {
		t.Fatalf("clusterIPs %q after %s", both, first)
	}
	if one := setPolicy(corev1.IPFamilyPolicySingleStack); len(one) != 1 || one[0] != first {
		t.Errorf("clusterIPs %q, want %s alone", one, first)
	}
	apply(t, s, newService("heir", func(svc *corev1.Service) { svc.Spec.ClusterIP = both[1] })) // it is free again
	apply(t, s, newService("headless", func(svc *corev1.Service) { svc.Spec.ClusterIP = "None" }))
	err := Update(s, "default", "headless", func(svc *corev1.Service) { svc.Spec.IPFamilies = []corev1.IPFamily{"IPv6"} })
	if err == nil || !strings.Contains(err.Error(), "spec.ipFamilies[0]: Invalid value: \"IPv6\": may not change once set") {
		t.Errorf("change of the primary family: %v", err)
	}
}

func TestExternalNameTransitions(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newPod("p", "n1", app("web")), newService("web", func(svc *corev1.Service) { svc.Spec.Type = "NodePort" }))
	report(t, s, "p", true, "10.244.1.2")
	if err := Update(s, "default", "web", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.ExternalName = "ExternalName", "example.com"
	}); err != nil {
		t.Fatal(err)
	}
	svc := get[*corev1.Service](t, s, "web").Spec
	if svc.ClusterIP != "" || len(svc.ClusterIPs)+len(svc.IPFamilies) > 0 || svc.Ports[0].NodePort != 0 || svc.InternalTrafficPolicy != nil {
		t.Errorf("spec %+v", svc)
	}
	if n := len(s.Snapshot().EndpointSlices); n != 0 {
		t.Errorf("%d slices of an ExternalName", n)
	}
	if err := Update(s, "default", "web", func(svc *corev1.Service) { svc.Spec.Type = "ClusterIP" }); err != nil {
		t.Fatal(err)
	}
	svc = get[*corev1.Service](t, s, "web").Spec
	if svc.ClusterIP == "" || svc.ExternalName != "" || len(s.Snapshot().EndpointSlices) != 1 {
		t.Errorf("spec %+v, %d slices", svc, len(s.Snapshot().EndpointSlices))
	}
}
