// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/dice"
)

// field is a part of a Service that the generator sets and changes.
type field struct {
	name string
	set  func(dice.Dice, *corev1.Service)
	// value describes the field's value for the coverage, in one of a few words.
	value func(*corev1.Service) string
	// fixed fields do not change while the Service lives.
	fixed bool
}

// fields are all parts of a Service. The type comes first, because others depend on it.
var fields = []field{
	{name: "type", set: setType, value: func(s *corev1.Service) string {
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			return "headless"
		}
		return string(s.Spec.Type)
	}},
	{name: "ports", set: setPorts, value: portsValue},
	{name: "selector", set: setSelector, value: func(s *corev1.Service) string {
		return fmt.Sprintf("%t", len(s.Spec.Selector) > 0)
	}},
	{name: "externalIPs", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.ExternalIPs = nil
		if d.Chance(3) {
			s.Spec.ExternalIPs = dice.Some(d, 1, 2, "external-1", "external-2", "external-3")
		}
	}, value: func(s *corev1.Service) string { return fmt.Sprint(len(s.Spec.ExternalIPs)) }},
	{name: "externalTrafficPolicy", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = dice.OneOf(d, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)
	}, value: func(s *corev1.Service) string { return string(s.Spec.ExternalTrafficPolicy) }},
	{name: "internalTrafficPolicy", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = dice.OneOf(d, nil, ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
			ptr.To(corev1.ServiceInternalTrafficPolicyLocal))
	}, value: func(s *corev1.Service) string {
		return string(ptr.Deref(s.Spec.InternalTrafficPolicy, ""))
	}},
	{name: "sessionAffinity", set: setAffinity, value: func(s *corev1.Service) string {
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
			return fmt.Sprintf("%s %d", s.Spec.SessionAffinity, ptr.Deref(c.ClientIP.TimeoutSeconds, 0))
		}
		return string(s.Spec.SessionAffinity)
	}},
	{name: "ingress", set: setIngress, value: ingressValue},
	{name: "loadBalancerSourceRanges", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.LoadBalancerSourceRanges = nil
		if d.Chance(3) {
			s.Spec.LoadBalancerSourceRanges = dice.Some(d, 1, 3, "c1", "a1", "192.168.7.201/32", "fd00:7::201/128",
				"198.51.100.0/24", "2001:db8:ffff::/48", " 192.168.7.11/32", "0.0.0.0/0", "::/0")
		}
	}, value: func(s *corev1.Service) string {
		return fmt.Sprintf("%t", len(s.Spec.LoadBalancerSourceRanges) > 0)
	}},
	{name: "ipFamilies", fixed: true, set: setFamilies, value: func(s *corev1.Service) string {
		return fmt.Sprint(ptr.Deref(s.Spec.IPFamilyPolicy, ""), s.Spec.IPFamilies)
	}},
	{name: "publishNotReadyAddresses", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.PublishNotReadyAddresses = d.Chance(6)
	}, value: func(s *corev1.Service) string { return fmt.Sprint(s.Spec.PublishNotReadyAddresses) }},
	{name: "trafficDistribution", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.TrafficDistribution = dice.OneOf(d, nil, nil, nil, nil,
			ptr.To(corev1.ServiceTrafficDistributionPreferClose), ptr.To(corev1.ServiceTrafficDistributionPreferSameZone),
			ptr.To(corev1.ServiceTrafficDistributionPreferSameNode))
	}, value: func(s *corev1.Service) string { return ptr.Deref(s.Spec.TrafficDistribution, "") }},
	{name: "loadBalancerClass", fixed: true, set: func(d dice.Dice, s *corev1.Service) {
		if s.Spec.LoadBalancerClass = nil; d.Chance(5) {
			s.Spec.LoadBalancerClass = ptr.To("example.com/balancer")
		}
	}, value: func(s *corev1.Service) string { return fmt.Sprintf("%t", s.Spec.LoadBalancerClass != nil) }},
	{name: "allocateLoadBalancerNodePorts", set: func(d dice.Dice, s *corev1.Service) {
		s.Spec.AllocateLoadBalancerNodePorts = dice.OneOf(d, nil, nil, ptr.To(true), ptr.To(false))
	}, value: func(s *corev1.Service) string {
		return fmt.Sprint(ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true))
	}},
	{name: "labels", set: func(d dice.Dice, s *corev1.Service) {
		if s.Labels = nil; d.Chance(20) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "another"}
		}
	}, value: func(s *corev1.Service) string { return fmt.Sprintf("%t", len(s.Labels) > 0) }},
}

func setType(d dice.Dice, s *corev1.Service) {
	const ip, np, lb = corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer
	s.Spec.ClusterIP = ""
	s.Spec.Type = dice.OneOf(d, ip, ip, ip, ip, np, np, np, np, lb, lb, lb, lb, lb, lb, lb)
	switch d.IntN(30) {
	case 0:
		s.Spec.Type, s.Spec.ClusterIP = ip, corev1.ClusterIPNone
	case 1:
		s.Spec.Type = corev1.ServiceTypeExternalName
	}
}

// longName has as many characters as a name of a Service or a port may have.
func longName(prefix string) string { return prefix + strings.Repeat("x", 63-len(prefix)) }

// targets are the names of the pods' ports by protocol.
var targets = map[corev1.Protocol]string{
	corev1.ProtocolTCP: "http", corev1.ProtocolUDP: "dns", corev1.ProtocolSCTP: "diameter",
}

func setPorts(d dice.Dice, s *corev1.Service) {
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	all := []corev1.ServicePort{
		{Protocol: tcp, Port: 80}, {Protocol: udp, Port: 80}, {Protocol: udp, Port: 53}, {Protocol: tcp, Port: 65535},
		{Protocol: tcp, Port: 8080}, {Protocol: udp, Port: 1}, {Protocol: corev1.ProtocolSCTP, Port: 80},
	}
	chosen := dice.Some(d, 1, 3, all...)
	if d.Chance(3) {
		chosen = slices.Clone(all[:2]) // one number, two protocols
	}
	for i := range chosen {
		p := &chosen[i]
		p.TargetPort = dice.OneOf(d, intstr.FromInt32(8080), intstr.FromInt32(8080), intstr.FromInt32(8081),
			intstr.FromString(targets[p.Protocol]))
		if p.Port == 8080 && d.Chance(2) {
			p.TargetPort = intstr.IntOrString{}
		}
		if len(chosen) > 1 || d.Chance(4) {
			p.Name = fmt.Sprintf("%s-%d", strings.ToLower(string(p.Protocol)), p.Port)
		}
		if d.Chance(40) {
			p.Name = longName(p.Name)
		}
		p.AppProtocol = dice.OneOf(d, nil, nil, nil, ptr.To("http"), ptr.To("kubernetes.io/h2c"))
	}
	s.Spec.Ports = chosen
}

func portsValue(s *corev1.Service) string {
	var protocols []string
	for _, p := range s.Spec.Ports {
		protocols = append(protocols, string(p.Protocol))
	}
	slices.Sort(protocols)
	return strings.Join(protocols, "+")
}

func setSelector(d dice.Dice, s *corev1.Service) {
	s.Spec.Selector = nil
	if !d.Chance(3) {
		s.Spec.Selector = map[string]string{"app": dice.OneOf(d, "web", "web", "web", "other", "nobody")}
	}
}

func setAffinity(d dice.Dice, s *corev1.Service) {
	s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if !d.Chance(5) {
		return
	}
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	if t := dice.OneOf[int32](d, 0, 0, 1, 10800, 86400); t > 0 {
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &t},
		}
	}
}

func setIngress(d dice.Dice, s *corev1.Service) {
	s.Status.LoadBalancer.Ingress = nil
	if d.Chance(8) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	}
	for _, name := range dice.Some(d, 0, 2, "balancer-1", "balancer-2", "balancer-3") {
		in := corev1.LoadBalancerIngress{IP: name, IPMode: dice.OneOf(d, nil, nil, ptr.To(corev1.LoadBalancerIPModeVIP),
			ptr.To(corev1.LoadBalancerIPModeVIP), ptr.To(corev1.LoadBalancerIPModeProxy))}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
}

func ingressValue(s *corev1.Service) string {
	var kinds []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		switch {
		case in.IP == "":
			kinds = append(kinds, "hostname")
		case proxyMode(in):
			kinds = append(kinds, "Proxy")
		default:
			kinds = append(kinds, "VIP")
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, "+")
}

func setFamilies(d dice.Dice, s *corev1.Service) {
	single, require := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = ptr.To(corev1.IPFamilyPolicyPreferDualStack), nil
	switch d.IntN(8) {
	case 0:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv4Protocol}
	case 1:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv6Protocol}
	case 2:
		s.Spec.IPFamilyPolicy = &require
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}
}

// normalize removes what the type of a Service does not allow.
func normalize(s *corev1.Service) {
	spec := &s.Spec
	balanced := spec.Type == corev1.ServiceTypeLoadBalancer
	if !balanced {
		s.Status.LoadBalancer.Ingress, spec.LoadBalancerSourceRanges = nil, nil
		spec.LoadBalancerClass, spec.AllocateLoadBalancerNodePorts = nil, nil
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		spec.ExternalName, spec.Selector, spec.ClusterIP = "example.com", nil, ""
		spec.IPFamilies, spec.IPFamilyPolicy = nil, nil
	} else {
		spec.ExternalName = ""
	}
	if spec.ClusterIP == corev1.ClusterIPNone {
		spec.ExternalIPs = nil
	}
	external := balanced || spec.Type == corev1.ServiceTypeNodePort || len(spec.ExternalIPs) > 0
	if !external || spec.Type == corev1.ServiceTypeExternalName {
		spec.ExternalTrafficPolicy = ""
	}
}
