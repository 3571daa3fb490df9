// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/lab/cluster/store"
)

// The random clusters are small and drawn from few names and addresses, so that changes collide.

// Random draws a cluster.
func Random(t *rapid.T) *store.Snapshot {
	s := &store.Snapshot{}
	for i, name := range []string{"a", "b", "c"} {
		if !rapid.Bool().Draw(t, name+" exists") {
			continue
		}
		s.Services = append(s.Services, someService(t, name, i))
		s.EndpointSlices = append(s.EndpointSlices, someSlice(t, name, discoveryv1.AddressTypeIPv4, i),
			someSlice(t, name, discoveryv1.AddressTypeIPv6, i))
	}
	return s
}

// Change draws a cluster that differs from another in one Service or its endpoints.
func Change(t *rapid.T, s *store.Snapshot) *store.Snapshot {
	next := *s
	next.Services, next.EndpointSlices = slices.Clone(s.Services), slices.Clone(s.EndpointSlices)
	if len(s.Services) == 0 {
		return Random(t)
	}
	i := rapid.IntRange(0, len(s.Services)-1).Draw(t, "which")
	name := s.Services[i].Name
	number := int(name[0] - 'a')
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		next.Services = slices.Delete(next.Services, i, i+1)
	case 1:
		next.Services[i] = someService(t, name, number)
	default:
		for j, sl := range next.EndpointSlices {
			if sl.Labels[discoveryv1.LabelServiceName] == name {
				next.EndpointSlices[j] = someSlice(t, name, sl.AddressType, number)
			}
		}
	}
	return &next
}

func someService(t *rapid.T, name string, number int) *corev1.Service {
	yes := func(what string) bool { return rapid.Bool().Draw(t, name+" "+what) }
	types := []corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer"}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name},
		Spec: corev1.ServiceSpec{
			Type:       rapid.SampledFrom(types).Draw(t, name+" type"),
			ClusterIPs: []string{fmt.Sprintf("10.96.0.%d", number+1), fmt.Sprintf("fd00:10:96::%d", number+1)},
		},
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for i, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if yes(string(proto)) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: string(proto), Port: int32(80 + rapid.IntRange(0, 1).Draw(t, "port")), Protocol: proto,
				NodePort: int32(30000 + 10*number + i),
			})
		}
	}
	if yes("etp local") {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = int32(31000 + number)
	}
	if yes("itp local") {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if yes("affinity") {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if yes("ranges") {
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "fd00:5::/64"}
	}
	if yes("external") {
		s.Spec.ExternalIPs = []string{"203.0.113.1", "fd00:3::1"} // the same for all: two Services may want one address
	}
	for _, ip := range []string{"192.0.2.1", "fd00:4::1", "203.0.113.1"} {
		if yes(ip) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
	return s
}

func someSlice(t *rapid.T, name string, family discoveryv1.AddressType, number int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "test", Name: name + "-" + string(family),
			Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: family,
	}
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(string(proto)), Port: new(int32(8080)),
			Protocol: new(proto)})
	}
	pattern := "10.244.%d.%d"
	if family == discoveryv1.AddressTypeIPv6 {
		pattern = "fd00:10:244:%d::%d"
	}
	for i := range rapid.IntRange(0, 3).Draw(t, name+" endpoints") {
		ready := rapid.Bool().Draw(t, "ready")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf(pattern, number, i+1)},
			NodeName:   new(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")),
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: new(true), Terminating: new(!ready)},
		})
	}
	return s
}
