// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// admitService sets the omitted fields of a Service, validates it, and allocates addresses and ports.
func (tx *Tx) admitService(svc, old *corev1.Service) field.ErrorList {
	if old != nil {
		keepAllocated(svc, old)
		dropForType(svc, old)
	}
	defaultService(svc)
	if svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0 {
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	// As in Kubernetes, a mistake in families, addresses or node ports hides others.
	errs := tx.s.setFamilies(svc, old)
	if len(errs) == 0 {
		errs = tx.s.allocate(svc)
	}
	if len(errs) == 0 {
		errs = validateService(svc, old)
	}
	return errs
}

func needsClusterIP(svc *corev1.Service) bool { return svc.Spec.Type != corev1.ServiceTypeExternalName }

func isHeadless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

func mayHaveNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts is false for a LoadBalancer that opted out; ports it asks for by number are honoured all the same.
func wantsNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(svc.Spec.AllocateLoadBalancerNodePorts, true)
}

func needsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// isExternal reports whether the Service accepts traffic from outside the cluster at all.
func isExternal(svc *corev1.Service) bool {
	return mayHaveNodePorts(svc) || svc.Spec.Type == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0
}

// asksFor reports whether a Service names a certain ClusterIP or port.
func asksFor(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP != "" && !isHeadless(svc) || len(nodePortsOf(svc)) > 0
}

// nodePortsOf lists the ports a Service holds on the nodes.
func nodePortsOf(svc *corev1.Service) []int32 {
	var out []int32
	if !mayHaveNodePorts(svc) {
		return nil
	}
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		out = append(out, p)
	}
	return out
}

// keepAllocated fills the open fields of the new Service with the old one's allocated values.
func keepAllocated(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	if needsClusterIP(svc) && needsClusterIP(old) {
		if spec.ClusterIP != was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIPs = nil // of a client that knows the old field alone
			if spec.ClusterIP != "" {
				spec.ClusterIPs = []string{spec.ClusterIP}
			}
		}
		if spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIP, spec.ClusterIPs = was.ClusterIP, slices.Clone(was.ClusterIPs)
		}
		setDefault(&spec.IPFamilyPolicy, was.IPFamilyPolicy)
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = slices.Clone(was.IPFamilies)
		}
		if ptr.Deref(spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack &&
			slices.Equal(spec.ClusterIPs, was.ClusterIPs) && slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.ClusterIPs = firstOf(spec.ClusterIPs)
			spec.IPFamilies = firstOf(spec.IPFamilies)
		}
	}
	if mayHaveNodePorts(svc) && mayHaveNodePorts(old) {
		keepNodePorts(spec.Ports, was.Ports)
	}
	if needsHealthPort(svc) && needsHealthPort(old) {
		setDefault(&spec.HealthCheckNodePort, was.HealthCheckNodePort)
	}
}

func firstOf[T any](s []T) []T { return s[:min(1, len(s))] }

// keepNodePorts matches ports by name, as the API server does.
func keepNodePorts(ports, was []corev1.ServicePort) {
	byName := map[string]int32{}
	for _, p := range was {
		byName[p.Name] = p.NodePort
	}
	asked := map[int32]bool{}
	for _, p := range ports {
		asked[p.NodePort] = true
	}
	for i := range ports {
		if n := byName[ports[i].Name]; ports[i].NodePort == 0 && !asked[n] {
			ports[i].NodePort = n
		}
	}
}

// dropForType empties unchanged fields that mean nothing to the new type, so that changing the type alone is enough.
func dropForType(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(svc) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if ptr.Equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if mayHaveNodePorts(old) && !mayHaveNodePorts(svc) {
		for i := range spec.Ports {
			if holdsNodePort(was.Ports, spec.Ports[i].NodePort) {
				spec.Ports[i].NodePort = 0
			}
		}
	}
	if needsHealthPort(old) && !needsHealthPort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if isExternal(old) && !isExternal(svc) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	if was.Type == corev1.ServiceTypeExternalName && spec.Type != was.Type && spec.ExternalName == was.ExternalName {
		spec.ExternalName = ""
	}
	if spec.Type == corev1.ServiceTypeExternalName && was.Type != spec.Type &&
		ptr.Equal(spec.InternalTrafficPolicy, was.InternalTrafficPolicy) {
		spec.InternalTrafficPolicy = nil
	}
}

func holdsNodePort(ports []corev1.ServicePort, n int32) bool {
	return slices.ContainsFunc(ports, func(p corev1.ServicePort) bool { return p.NodePort == n })
}

// defaultService sets the defaults that need no knowledge of the cluster.
func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if spec.SessionAffinityConfig == nil || spec.SessionAffinityConfig.ClientIP == nil ||
			spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		setDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if isExternal(svc) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if needsClusterIP(svc) {
		setDefault(&spec.InternalTrafficPolicy, ptr.To(corev1.ServiceInternalTrafficPolicyCluster))
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		setDefault(&spec.AllocateLoadBalancerNodePorts, ptr.To(true))
	}
	defaultServiceStatus(svc)
}

func defaultServiceStatus(svc *corev1.Service) {
	for i := range svc.Status.LoadBalancer.Ingress {
		if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			setDefault(&in.IPMode, ptr.To(corev1.LoadBalancerIPModeVIP))
		}
	}
}

// setDefault sets what has the zero value.
func setDefault[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// allocate gives a valid Service its ClusterIPs and ports, or reserves those it asks for. It keeps those it holds.
func (s *Store) allocate(svc *corev1.Service) field.ErrorList {
	if !needsClusterIP(svc) {
		return nil
	}
	errs := s.allocateAddresses(svc)
	if len(errs) == 0 && mayHaveNodePorts(svc) {
		errs = s.allocateNodePorts(svc)
	}
	return errs
}

func (s *Store) allocateAddresses(svc *corev1.Service) field.ErrorList {
	if isHeadless(svc) {
		svc.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "clusterIPs")
	for i, family := range svc.Spec.IPFamilies {
		if i < len(svc.Spec.ClusterIPs) {
			errs = append(errs, s.claimAddress(path, svc, svc.Spec.ClusterIPs[i])...)
			continue
		}
		ip, ok := s.freeAddress(KeyOf(svc).String(), family)
		if !ok {
			err := fmt.Errorf("no free address is left in %s", joined(s.serviceRanges(family)))
			errs = append(errs, field.InternalError(path.Index(i), err))
			continue
		}
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip.String())
	}
	if len(svc.Spec.ClusterIPs) > 0 {
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	return errs
}

// claimAddress checks an address that the Service asks for or already holds.
func (s *Store) claimAddress(path *field.Path, svc *corev1.Service, address string) field.ErrorList {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return invalid(path, address, err.Error())
	}
	owner, taken := s.ownerOf(ip)
	if own := (holder{"Service", KeyOf(svc)}); taken && owner == own {
		return nil
	}
	ranges := s.serviceRanges(familyOf(ip))
	if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(ip) && ip != r.Addr() }) {
		return invalid(path, address,
			fmt.Sprintf("provided IP is not in the valid range. The range of valid IPs is %s", joined(ranges)))
	}
	if taken {
		return invalid(path, address, fmt.Sprintf("provided IP is already allocated: %s has it", owner))
	}
	return nil
}

func (s *Store) allocateNodePorts(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	mine := map[int32]bool{}
	for i, p := range svc.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		mine[p.NodePort] = true
		errs = append(errs, s.claimNodePort(path.Child("ports").Index(i).Child("nodePort"), svc, p.NodePort)...)
	}
	if wantsNodePorts(svc) {
		for i := range svc.Spec.Ports {
			errs = append(errs, s.openNodePort(svc, i, mine)...)
		}
	}
	if !needsHealthPort(svc) {
		return errs
	}
	health := path.Child("healthCheckNodePort")
	if n := svc.Spec.HealthCheckNodePort; n != 0 {
		bad := s.claimNodePort(health, svc, n)
		if len(bad) == 0 && mine[n] {
			bad = invalid(health, n, "provided port is already allocated: it is a nodePort of this Service")
		}
		return append(errs, bad...)
	}
	n, ok := s.freePort(KeyOf(svc).String()+" health", mine)
	if !ok {
		return append(errs, field.InternalError(health, s.noPortLeft()))
	}
	svc.Spec.HealthCheckNodePort = n
	return errs
}

// openNodePort gives the i-th port a NodePort: that of a port with its number and another protocol, or a free one.
func (s *Store) openNodePort(svc *corev1.Service, i int, mine map[int32]bool) field.ErrorList {
	port := &svc.Spec.Ports[i]
	if port.NodePort != 0 {
		return nil
	}
	for _, twin := range svc.Spec.Ports {
		if twin.Port == port.Port && twin.NodePort != 0 &&
			!slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.NodePort == twin.NodePort && p.Protocol == port.Protocol
			}) {
			port.NodePort = twin.NodePort
			return nil
		}
	}
	n, ok := s.freePort(fmt.Sprintf("%s %s/%d", KeyOf(svc), port.Protocol, port.Port), mine)
	if !ok {
		path := field.NewPath("spec", "ports").Index(i).Child("nodePort")
		return field.ErrorList{field.InternalError(path, s.noPortLeft())}
	}
	port.NodePort = n
	mine[n] = true
	return nil
}

func (s *Store) noPortLeft() error { return fmt.Errorf("no free port is left in %s", s.nodeRange) }

func (s *Store) claimNodePort(path *field.Path, svc *corev1.Service, port int32) field.ErrorList {
	if !s.nodeRange.Contains(port) {
		return invalid(path, port,
			fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %s", s.nodeRange))
	}
	if owner, taken := s.index.nodePorts[port]; taken && owner != KeyOf(svc) {
		return invalid(path, port, fmt.Sprintf("provided port is already allocated: Service %q has it", owner))
	}
	return nil
}
