// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// validateService checks a defaulted Service that has its addresses and ports.
func validateService(svc, old *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	errs := oneOf(path.Child("type"), spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeExternalName)
	errs = append(errs, metav1validation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateServicePorts(svc, path.Child("ports"))...)
	errs = append(errs, validateClusterIPs(svc)...)
	errs = append(errs, keepsClusterIPs(svc, old)...)
	if isHeadless(svc) && mayHaveNodePorts(svc) {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), spec.ClusterIP,
			fmt.Sprintf("may not be 'None' for %s services", spec.Type)))
	}
	errs = append(errs, validateExternalName(svc)...)
	errs = append(errs, validateAffinity(spec, path)...)
	errs = append(errs, validateTrafficPolicies(svc)...)
	errs = append(errs, validateLoadBalancer(svc, old)...)
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, validateOrdinaryIP(path.Child("externalIPs").Index(i), ip)...)
	}
	return append(errs, validateServiceStatus(svc)...)
}

// oneOf checks an enumeration.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

func validatePort(path *field.Path, port int32) field.ErrorList {
	return invalid(path, port, validation.IsValidPortNum(int(port))...)
}

// check checks a string with one of the string validators.
func check(path *field.Path, s string, validator func(string) []string) field.ErrorList {
	return invalid(path, s, validator(s)...)
}

// checkSet is check for a string that may be empty.
func checkSet(path *field.Path, s string, validator func(string) []string) field.ErrorList {
	if s == "" {
		return nil
	}
	return check(path, s, validator)
}

// once finds values that are given twice. The value stands in the error for the key.
func once[K comparable](path *field.Path, seen map[K]bool, key K, value any) field.ErrorList {
	if seen[key] {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen[key] = true
	return nil
}

// atMost limits the length of a list.
func atMost(path *field.Path, n, most int) field.ErrorList {
	if n <= most {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, most)}
}

// invalid returns an error for each message of a validator.
func invalid(path *field.Path, value any, messages ...string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func validateServicePorts(svc *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ports := svc.Spec.Ports
	if len(ports) == 0 && !isHeadless(svc) && needsClusterIP(svc) {
		errs = append(errs,
			field.Required(path, "a Service needs a port unless it is headless or of type ExternalName"))
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers, nodePorts := map[string]bool{}, map[number]bool{}, map[number]bool{}
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, validateServicePort(svc, p, at, len(ports) > 1)...)
		if p.Name != "" {
			errs = append(errs, once(at.Child("name"), names, p.Name, p.Name)...)
		}
		name := fmt.Sprintf("port %d/%s", p.Port, p.Protocol)
		errs = append(errs, once(at, numbers, number{p.Protocol, p.Port}, name)...)
		if p.NodePort != 0 {
			errs = append(errs, once(at.Child("nodePort"), nodePorts, number{p.Protocol, p.NodePort}, p.NodePort)...)
		}
	}
	return errs
}

func validateServicePort(svc *corev1.Service, p corev1.ServicePort, path *field.Path, named bool) field.ErrorList {
	errs := validatePortName(path.Child("name"), p.Name, named)
	errs = append(errs, validatePort(path.Child("port"), p.Port)...)
	errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, protocols...)...)
	if target := path.Child("targetPort"); p.TargetPort.Type == intstr.String {
		errs = append(errs, check(target, p.TargetPort.StrVal, validation.IsValidPortName)...)
	} else {
		errs = append(errs, validatePort(target, p.TargetPort.IntVal)...)
	}
	if p.NodePort != 0 && svc.Spec.Type == corev1.ServiceTypeClusterIP {
		errs = append(errs, field.Forbidden(path.Child("nodePort"),
			"may not be used when `type` is 'ClusterIP': it needs NodePort or LoadBalancer"))
	}
	if p.AppProtocol != nil {
		errs = append(errs, check(path.Child("appProtocol"), *p.AppProtocol, validation.IsQualifiedName)...)
	}
	return errs
}

// validatePortName checks the name of a port, which it needs unless the port is the only one.
func validatePortName(path *field.Path, name string, needed bool) field.ErrorList {
	if name == "" && needed {
		return field.ErrorList{field.Required(path, "ports have names when there are several")}
	}
	return checkSet(path, name, validation.IsDNS1123Label)
}

func validateClusterIPs(svc *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if !needsClusterIP(svc) {
		if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIPs"), "may not be set for ExternalName services"))
		}
		if len(spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ipFamilies"), "may not be set for ExternalName services"))
		}
		if spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), "may not be set for ExternalName services"))
		}
		return errs
	}
	policy := ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
	errs = append(errs, oneOf(path.Child("ipFamilyPolicy"), policy,
		corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack)...)
	errs = append(errs, validateClusterIPList(spec, path.Child("clusterIPs"))...)
	return errs
}

// keepsClusterIPs checks that a Service keeps the addresses that it has.
func keepsClusterIPs(svc, old *corev1.Service) field.ErrorList {
	if old == nil || !needsClusterIP(svc) || !needsClusterIP(old) {
		return nil
	}
	var errs field.ErrorList
	path, now := field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs
	for i := range min(len(now), len(old.Spec.ClusterIPs)) {
		if was := old.Spec.ClusterIPs[i]; now[i] != was {
			errs = append(errs, field.Invalid(path.Index(i), now[i], fmt.Sprintf("may not change once set (it is %s)", was)))
		}
	}
	return errs
}

func validateClusterIPList(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	ips := spec.ClusterIPs
	var errs field.ErrorList
	if len(ips) == 0 {
		return nil
	}
	if spec.ClusterIP == "" {
		return invalid(path, ips, "clusterIPs must be empty when `clusterIP` is not specified")
	}
	if ips[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(path, ips, "first value must match `clusterIP`"))
	}
	errs = append(errs, atMost(path, len(ips), 2)...)
	for i, ip := range ips {
		if ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				errs = append(errs, field.Invalid(path.Index(i), ip, "may be set only alone"))
			}
			continue
		}
		errs = append(errs, validateIP(path.Index(i), ip)...)
	}
	return errs
}

func validateExternalName(svc *corev1.Service) field.ErrorList {
	path, name := field.NewPath("spec", "externalName"), svc.Spec.ExternalName
	switch {
	case needsClusterIP(svc):
		return nil // unused, and Kubernetes accepts it
	case name == "":
		return field.ErrorList{field.Required(path, "the name that an ExternalName service stands for")}
	default:
		return invalid(path, name, validation.IsDNS1123Subdomain(strings.TrimSuffix(name, "."))...)
	}
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityNone,
		corev1.ServiceAffinityClientIP)
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return errs
	}
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		const day = 86400
		if t := *c.ClientIP.TimeoutSeconds; t <= 0 || t > day {
			errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), t,
				fmt.Sprintf("must be greater than 0 and less than or equal to %d", day)))
		}
	}
	return errs
}

func validateTrafficPolicies(svc *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if p := spec.ExternalTrafficPolicy; !isExternal(svc) {
		if p != "" {
			errs = append(errs, field.Invalid(path.Child("externalTrafficPolicy"), p,
				"may only be set for externally-accessible services: "+
					"type NodePort or LoadBalancer, or with externalIPs"))
		}
	} else {
		errs = append(errs, oneOf(path.Child("externalTrafficPolicy"), p,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	if p, at := spec.InternalTrafficPolicy, path.Child("internalTrafficPolicy"); p != nil {
		errs = append(errs, oneOf(at, *p,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if d := spec.TrafficDistribution; d != nil {
		errs = append(errs, oneOf(path.Child("trafficDistribution"), *d, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

func validateLoadBalancer(svc, old *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	var errs field.ErrorList
	only := func(name string, set bool) {
		if set && spec.Type != corev1.ServiceTypeLoadBalancer {
			errs = append(errs, field.Forbidden(path.Child(name), "may only be used when `type` is 'LoadBalancer'"))
		}
	}
	only("loadBalancerSourceRanges", len(spec.LoadBalancerSourceRanges) > 0)
	only("allocateLoadBalancerNodePorts", spec.AllocateLoadBalancerNodePorts != nil)
	only("loadBalancerClass", spec.LoadBalancerClass != nil)
	for i, cidr := range spec.LoadBalancerSourceRanges {
		// People leave spaces around the commas of the annotation this field grew out of.
		errs = append(errs, validateCIDR(path.Child("loadBalancerSourceRanges").Index(i), strings.TrimSpace(cidr))...)
	}
	if c := spec.LoadBalancerClass; c != nil && spec.Type == corev1.ServiceTypeLoadBalancer {
		errs = append(errs, check(path.Child("loadBalancerClass"), *c, validation.IsQualifiedName)...)
	}
	if old != nil && old.Spec.Type == spec.Type && spec.Type == corev1.ServiceTypeLoadBalancer &&
		!ptr.Equal(old.Spec.LoadBalancerClass, spec.LoadBalancerClass) {
		errs = append(errs,
			field.Invalid(path.Child("loadBalancerClass"), spec.LoadBalancerClass, "may not change once set"))
	}
	health := path.Child("healthCheckNodePort")
	switch p := spec.HealthCheckNodePort; {
	case p != 0 && !needsHealthPort(svc):
		errs = append(errs, field.Invalid(health, p,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case old != nil && needsHealthPort(old) && needsHealthPort(svc) && p != old.Spec.HealthCheckNodePort:
		errs = append(errs, immutable(health, p, old.Spec.HealthCheckNodePort)...)
	}
	return errs
}

func validateServiceStatus(svc *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := svc.Status.LoadBalancer.Ingress
	var errs field.ErrorList
	if len(ingress) > 0 && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
	}
	for i, in := range ingress {
		at := path.Index(i)
		if in.IP != "" {
			errs = append(errs, validateIP(at.Child("ip"), in.IP)...)
		} else if in.IPMode != nil {
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if in.IPMode != nil {
			errs = append(errs, oneOf(at.Child("ipMode"), *in.IPMode, corev1.LoadBalancerIPModeVIP,
				corev1.LoadBalancerIPModeProxy)...)
		}
		errs = append(errs, checkSet(at.Child("hostname"), in.Hostname, validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func validateIP(path *field.Path, ip string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, ip, true, nil)
}

// validateOrdinaryIP rejects addresses of the host itself or its link, because no traffic to them reaches a proxier.
func validateOrdinaryIP(path *field.Path, s string) field.ErrorList {
	errs := validateIP(path, s)
	ip, err := netip.ParseAddr(s)
	if err != nil || len(errs) > 0 {
		return errs
	}
	reason := ""
	switch {
	case ip.IsUnspecified():
		reason = fmt.Sprintf("may not be unspecified (%s)", ip)
	case ip.IsLoopback():
		reason = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case ip.IsLinkLocalUnicast():
		reason = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case ip.IsLinkLocalMulticast():
		reason = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return nil
	}
	return invalid(path, s, reason)
}
