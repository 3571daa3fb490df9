// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestServiceDefaults(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("web", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80},
			{Name: "b", Port: 81, TargetPort: intstr.FromString("http")}}
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
	if svc.UID == "" || svc.ResourceVersion == "" || svc.Generation != 1 || !svc.CreationTimestamp.Time.Equal(epoch) ||
		svc.Kind != "Service" {
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
	if !s.NodePorts().Contains(lb.Ports[0].NodePort) || !s.NodePorts().Contains(lb.HealthCheckNodePort) ||
		lb.Ports[0].NodePort == lb.HealthCheckNodePort {
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
		{"duplicate port and name", func(s *corev1.ServiceSpec) {
			s.Ports[0].Name = "a"
			s.Ports = append(s.Ports,
				s.Ports[0])
		},
			[]string{`spec.ports[1].name: Duplicate value: "a"`, `spec.ports[1]: Duplicate value: "port 80/TCP"`}},
		{"protocol", func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = "tcp" },
			[]string{`spec.ports[0].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"`}},
		{"port name", func(s *corev1.ServiceSpec) { s.Ports[0].Name = "Web" },
			[]string{`spec.ports[0].name: Invalid value: "Web"`}},
		{"target name too long", func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromString("a-very-long-name") },
			[]string{"spec.ports[0].targetPort: Invalid value", "no more than 15"}},
		{"type", func(s *corev1.ServiceSpec) { s.Type = "Clusterip" }, []string{`spec.type: Unsupported value: "Clusterip"`}},
		{"nodePort of a ClusterIP", func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30001 },
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"nodePort out of range", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.Ports[0].NodePort = 80 },
			[]string{"spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid " +
				"ports is 30000-32767"}},
		{"nodePort taken", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.Ports[0].NodePort = 30080 },
			[]string{`spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service "default/taken" has it`}},
		{"nodePort twice", func(s *corev1.ServiceSpec) {
			s.Type = "NodePort"
			s.Ports = []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30001}}
		}, []string{"spec.ports[1].nodePort: Duplicate value: 30001"}},
		{"clusterIP out of range", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.97.0.1" },
			[]string{`spec.clusterIPs: Invalid value: "10.97.0.1": provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16`}},
		{"clusterIP taken", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.10" },
			[]string{`spec.clusterIPs: Invalid value: "10.96.0.10": provided IP is already allocated: Service "default/taken" has it`}},
		{"clusterIP nonsense", func(s *corev1.ServiceSpec) { s.ClusterIP = "none" },
			[]string{`spec.clusterIPs[0]: Invalid value: "none": must be a valid IP address`}},
		{"clusterIPs without clusterIP", func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"10.96.0.11"} },
			[]string{"spec.clusterIPs: Invalid value", "must be empty when `clusterIP` is not specified"}},
		{"clusterIP and clusterIPs differ", func(s *corev1.ServiceSpec) {
			s.ClusterIP, s.ClusterIPs = "10.96.0.12",
				[]string{"10.96.0.11"}
		},
			[]string{"spec.clusterIPs: Invalid value: [\"10.96.0.11\"]: first value must match `clusterIP`"}},
		{"family that the cluster lacks", func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{"IPv6"} },
			[]string{`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`}},
		{"dual stack required", func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) },
			[]string{`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`}},
		{"headless NodePort", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.ClusterIP = "None" },
			[]string{`spec.clusterIPs[0]: Invalid value: "None": may not be 'None' for NodePort services`}},
		{"externalTrafficPolicy of a ClusterIP", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = "Local" },
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{"externalTrafficPolicy nonsense", func(s *corev1.ServiceSpec) { s.Type = "NodePort"; s.ExternalTrafficPolicy = "local" },
			[]string{`spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`}},
		{"internalTrafficPolicy nonsense", func(s *corev1.ServiceSpec) {
			s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy("Node"))
		}, []string{`spec.internalTrafficPolicy: Unsupported value: "Node"`}},
		{"trafficDistribution nonsense", func(s *corev1.ServiceSpec) { s.TrafficDistribution = ptr.To("Near") },
			[]string{`spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
		{"ExternalName without a name, with an address",
			func(s *corev1.ServiceSpec) { s.Type = "ExternalName"; s.ClusterIP = "10.96.0.11" },
			[]string{"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
				"spec.externalName: Required value"}},
		{"affinity", func(s *corev1.ServiceSpec) { s.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: Unsupported value: "Cookie"`}},
		{"affinity for too long", func(s *corev1.ServiceSpec) {
			s.SessionAffinity = "ClientIP"
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](86401)}}
		}, []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and " +
			"less than or equal to 86400"}},
		{"source ranges", func(s *corev1.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"10.0.0.0/33", "10.0.0.0/8"} },
			[]string{"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
				`spec.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.0/33"`}},
		{"health port", func(s *corev1.ServiceSpec) { s.Type = "LoadBalancer"; s.HealthCheckNodePort = 30005 },
			[]string{"spec.healthCheckNodePort: Invalid value: 30005: may only be set when"}},
		{"external IPs", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"127.0.0.1", "x", "192.0.2.1"} },
			[]string{`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range`,
				`spec.externalIPs[1]: Invalid value: "x"`}},
		{"selector", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"a b": "c"} },
			[]string{`spec.selector: Invalid value: "a b"`}},
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
