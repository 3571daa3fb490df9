// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// validateService checks a defaulted Service by itself and against the one it replaces; whether its addresses and
// ports can be had is the allocators' to say.
func validateService(svc, old *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	errs := oneOf(path.Child("type"), spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeExternalName)
	errs = append(errs, metav1validation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateServicePorts(svc, path.Child("ports"))...)
	errs = append(errs, validateClusterIPs(svc, old)...)
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
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

func validatePort(path *field.Path, port int32) field.ErrorList {
	return invalid(path, port, validation.IsValidPortNum(int(port)))
}

// invalid turns the messages of the string validators into errors.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
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
		errs = append(errs, field.Required(path, "a Service needs a port unless it is headless or of type ExternalName"))
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers, nodePorts := map[string]bool{}, map[number]bool{}, map[number]bool{}
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, validateServicePort(svc, p, at, len(ports) > 1)...)
		if p.Name != "" && names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
		if n := (number{p.Protocol, p.Port}); numbers[n] {
			errs = append(errs, field.Duplicate(at, fmt.Sprintf("port %d/%s", p.Port, p.Protocol)))
		} else {
			numbers[n] = true
		}
		if n := (number{p.Protocol, p.NodePort}); p.NodePort != 0 && nodePorts[n] {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		} else {
			nodePorts[n] = true
		}
	}
	return errs
}

func validateServicePort(svc *corev1.Service, p corev1.ServicePort, path *field.Path, named bool) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, invalid(path.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
	} else if named {
		errs = append(errs, field.Required(path.Child("name"), "ports have names when there are several"))
	}
	errs = append(errs, validatePort(path.Child("port"), p.Port)...)
	errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, protocols...)...)
	switch {
	case p.TargetPort.Type == intstr.String:
		errs = append(errs, invalid(path.Child("targetPort"), p.TargetPort.StrVal,
			validation.IsValidPortName(p.TargetPort.StrVal))...)
	case p.TargetPort.IntVal != p.Port: // the default: one error for one mistake
		errs = append(errs, validatePort(path.Child("targetPort"), p.TargetPort.IntVal)...)
	}
	if p.NodePort != 0 && !mayHaveNodePorts(svc) {
		errs = append(errs, field.Forbidden(path.Child("nodePort"),
			fmt.Sprintf("may not be used when `type` is '%s': it needs NodePort or LoadBalancer", svc.Spec.Type)))
	}
	if p.AppProtocol != nil {
		errs = append(errs, invalid(path.Child("appProtocol"), *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}

func validateClusterIPs(svc, old *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if !needsClusterIP(svc) {
		if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIPs"), "may not be set for ExternalName services"))
		}
		if len(spec.IPFamilies) > 0 || spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("ipFamilies"), "families may not be set for ExternalName services"))
		}
		return errs
	}
	errs = append(errs, oneOf(path.Child("ipFamilyPolicy"), ptr.Deref(spec.IPFamilyPolicy,
		corev1.IPFamilyPolicySingleStack),
		corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	if isHeadless(svc) && mayHaveNodePorts(svc) {
		errs = append(errs, field.Invalid(path.Child("clusterIP"), spec.ClusterIP,
			fmt.Sprintf("may not be 'None' for %s services", spec.Type)))
	}
	errs = append(errs, validateClusterIPList(spec, path.Child("clusterIPs"))...)
	if old != nil && needsClusterIP(old) && len(old.Spec.ClusterIPs) > 0 {
		for i := range min(len(spec.ClusterIPs), len(old.Spec.ClusterIPs)) {
			if was := old.Spec.ClusterIPs[i]; spec.ClusterIPs[i] != was {
				errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), spec.ClusterIPs[i],
					fmt.Sprintf("may not change once set (it is %s)", was)))
			}
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
		return field.ErrorList{field.Invalid(path, ips, "clusterIPs must be empty when `clusterIP` is not specified")}
	}
	if ips[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(path.Index(0), ips[0], "first value must match `clusterIP`"))
	}
	if len(ips) > 2 {
		errs = append(errs, field.TooMany(path, len(ips), 2))
	}
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
		return invalid(path, name, validation.IsDNS1123Subdomain(strings.TrimSuffix(name, ".")))
	}
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityNone,
		corev1.ServiceAffinityClientIP)
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
	if p := spec.InternalTrafficPolicy; p != nil {
		if !needsClusterIP(svc) {
			errs = append(errs, field.Forbidden(path.Child("internalTrafficPolicy"), "may not be set for ExternalName services"))
		} else {
			errs = append(errs, oneOf(path.Child("internalTrafficPolicy"), *p,
				corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
		}
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
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Child("loadBalancerSourceRanges").Index(i),
			strings.TrimSpace(cidr), true, nil)...)
	}
	if c := spec.LoadBalancerClass; c != nil {
		errs = append(errs, invalid(path.Child("loadBalancerClass"), *c, validation.IsQualifiedName(*c))...)
	}
	if old != nil && old.Spec.Type == spec.Type && spec.Type == corev1.ServiceTypeLoadBalancer &&
		!ptr.Equal(old.Spec.LoadBalancerClass, spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), spec.LoadBalancerClass, "may not change once set"))
	}
	health := path.Child("healthCheckNodePort")
	switch p := spec.HealthCheckNodePort; {
	case p != 0 && !needsHealthPort(svc):
		errs = append(errs, field.Invalid(health, p,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case old != nil && needsHealthPort(old) && needsHealthPort(svc) && p != old.Spec.HealthCheckNodePort:
		errs = append(errs, field.Invalid(health, p, fmt.Sprintf("field is immutable (it is %d)",
			old.Spec.HealthCheckNodePort)))
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
		if in.Hostname != "" {
			errs = append(errs, invalid(at.Child("hostname"), in.Hostname, validation.IsDNS1123Subdomain(in.Hostname))...)
		}
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
	switch {
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, s, fmt.Sprintf("may not be unspecified (%s)", ip))}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, s, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, s, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, s,
			"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}
