// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
)

// labelServiceProxyName assigns a Service to another proxier (KEP-2447). Services of kube-proxy do not have the label.
const labelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// serviceFrom translates a Service object for one family, without endpoints. It returns nil if the Service has no
// virtual IP in the family, or belongs to another proxier.
func serviceFrom(o *corev1.Service, f lab.Family) *Service {
	if o == nil || !proxied(o) {
		return nil
	}
	clusterIP := clusterIPOf(o, f)
	if !clusterIP.IsValid() {
		return nil
	}
	s := &Service{Namespace: o.Namespace, Name: o.Name}
	shared := Port{
		ClusterIP:     clusterIP,
		ExternalIPs:   addrsOf(o.Spec.ExternalIPs, f),
		InternalLocal: ptr.Deref(o.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal,
		Affinity:      affinityOf(o),
	}
	if o.Spec.Type == corev1.ServiceTypeLoadBalancer {
		shared.LoadBalancerIPs = addrsOf(virtualIngress(o), f)
		shared.SourceRanges = rangesOf(o.Spec.LoadBalancerSourceRanges, f)
	}
	nodePorts := o.Spec.Type == corev1.ServiceTypeNodePort || o.Spec.Type == corev1.ServiceTypeLoadBalancer
	shared.ExternalLocal = o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal &&
		(nodePorts || len(o.Spec.ExternalIPs) > 0)
	if o.Spec.Type == corev1.ServiceTypeLoadBalancer && shared.ExternalLocal && validPort(o.Spec.HealthCheckNodePort) {
		shared.HealthCheckPort = uint16(o.Spec.HealthCheckNodePort)
		s.Health = &HealthCheck{Port: shared.HealthCheckPort}
	}

	for _, sp := range o.Spec.Ports {
		p := shared
		p.ID = PortID{o.Namespace, o.Name, sp.Name, cmp.Or(sp.Protocol, corev1.ProtocolTCP)}
		if !validPort(sp.Port) || slices.ContainsFunc(s.Ports, func(q *Port) bool { return q.ID == p.ID }) {
			continue
		}
		p.Number = uint16(sp.Port)
		if nodePorts && validPort(sp.NodePort) {
			p.NodePort = uint16(sp.NodePort)
		}
		s.Ports = append(s.Ports, &p)
	}
	return s
}

// proxied reports whether this proxier must serve the Service: it has a virtual IP, and no label assigns it to another
// proxier.
func proxied(o *corev1.Service) bool {
	if o.Spec.Type == corev1.ServiceTypeExternalName || o.Spec.ClusterIP == "" ||
		o.Spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	_, foreign := o.Labels[labelServiceProxyName]
	_, headless := o.Labels[corev1.IsHeadlessService]
	return !foreign && !headless
}

// clusterIPOf returns the Service's ClusterIP of a family, or the zero Addr if it has none. Objects from before dual
// stack have only spec.clusterIP.
func clusterIPOf(o *corev1.Service, f lab.Family) netip.Addr {
	all := o.Spec.ClusterIPs
	if len(all) == 0 {
		all = []string{o.Spec.ClusterIP}
	}
	return append(addrsOf(all, f), netip.Addr{})[0]
}

// virtualIngress returns the load balancer addresses that nodes serve themselves (KEP-1860: ipMode VIP, the default).
func virtualIngress(o *corev1.Service) []string {
	var out []string
	for _, in := range o.Status.LoadBalancer.Ingress {
		if in.IP != "" && ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP {
			out = append(out, in.IP)
		}
	}
	return out
}

// affinityOf returns the Service's affinity timeout, or 0 without session affinity. Like the API server, it uses three
// hours if the object has no timeout.
func affinityOf(o *corev1.Service) time.Duration {
	if o.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := o.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		seconds = ptr.Deref(c.ClientIP.TimeoutSeconds, seconds)
	}
	return time.Duration(seconds) * time.Second
}

// addrsOf parses addresses. It drops duplicates, and all that are malformed or of another family.
func addrsOf(texts []string, f lab.Family) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a, ok := parseAddr(t); ok && lab.FamilyOf(a) == f && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// rangesOf parses the ranges of one family. A range that covers all addresses, or no range of this family, means no
// limit. The API allows blanks around a range.
func rangesOf(texts []string, f lab.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		p, ok := ParsePrefix(strings.TrimSpace(t))
		if !ok || lab.FamilyOf(p.Addr()) != f {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// parseAddr parses an address as Kubernetes does: leading zeros in IPv4 are decimal, and an IPv4-mapped IPv6 address is
// IPv4.
func parseAddr(text string) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return a.Unmap(), ok
}

// ParsePrefix parses a range as Kubernetes does: it ignores leading zeros and bits beyond the mask.
func ParsePrefix(text string) (netip.Prefix, bool) {
	_, n, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a, ones).Masked(), ok
}

func validPort(n int32) bool { return n > 0 && n <= 65535 }
