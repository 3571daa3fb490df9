// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// claim is a port of a Service that has an address and port as one of its own.
type claim struct {
	service *corev1.Service
	port    corev1.ServicePort
	kind    frontend
	node    string // of a NodePort
}

// frontend is the kind of a Service's address.
type frontend uint8

const (
	clusterIP frontend = iota
	nodePort
	loadBalancer
	externalIP
)

// local reports whether the traffic policy for the address is Local. "externalTrafficPolicy" is about NodePorts,
// external IPs and load balancer IPs, "internalTrafficPolicy" about the ClusterIP.
func (c claim) local() bool {
	if c.kind == clusterIP {
		return ptr.Deref(c.service.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal
	}
	return c.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

const labelProxyName = "service.kubernetes.io/service-proxy-name"

// claims returns the ports of Services that have the address and port. If there are none, or it is open whether a
// Service has it, it returns the answer.
func (s *State) claims(q Question) (claims []claim, none Answer) {
	none = answer(NotServed, unclaimed)
	var undecided *Rule
	for _, svc := range s.Services {
		kind, node, found, open := s.has(svc, q.To)
		if !found && open == nil {
			continue
		}
		for _, p := range svc.Spec.Ports {
			number := p.Port
			if kind == nodePort {
				number = p.NodePort
			}
			_, labelled := svc.Labels[labelProxyName]
			switch {
			case number != int32(q.To.Port()) || p.Protocol != q.Protocol:
			case open != nil:
				undecided = open
			case svc.Spec.Type == corev1.ServiceTypeExternalName:
				none = answer(NotServed, aliased)
			case labelled && !s.Offers.ServiceProxyName:
				undecided = &proxyNameOptional
			case labelled:
				none = answer(NotServed, otherProxier)
			default:
				claims = append(claims, claim{svc, p, kind, node})
			}
		}
	}
	if undecided != nil {
		return nil, answer(Open, *undecided)
	}
	return claims, none
}

// has reports whether a Service has an address, and as what. open is a rule that leaves open whether it has it.
func (s *State) has(svc *corev1.Service, to netip.AddrPort) (kind frontend, node string, found bool, open *Rule) {
	addr := to.Addr()
	is := func(text string) bool { a, err := netip.ParseAddr(text); return err == nil && a == addr }
	if slices.ContainsFunc(svc.Spec.ClusterIPs, is) {
		return clusterIP, "", true, nil
	}
	// A Service of type ExternalName has no families.
	ofFamily := svc.Spec.Type == corev1.ServiceTypeExternalName || slices.Contains(svc.Spec.IPFamilies, familyOf(addr))
	if slices.ContainsFunc(svc.Spec.ExternalIPs, is) {
		if !ofFamily {
			return externalIP, "", false, &foreignFamily
		}
		return externalIP, "", true, nil
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			switch {
			case !is(in.IP):
			case ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) != corev1.LoadBalancerIPModeVIP:
				return loadBalancer, "", false, &proxyMode
			case !ofFamily:
				return loadBalancer, "", false, &foreignFamily
			default:
				return loadBalancer, "", true, nil
			}
		}
	}
	hasNodePorts := svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	for _, n := range s.Nodes {
		for i, a := range n.Status.Addresses {
			switch {
			case !is(a.Address) || a.Type != corev1.NodeInternalIP || !hasNodePorts:
			case !ofFamily:
				return nodePort, "", false, &foreignFamily
			case !first(n.Status.Addresses, i):
				return nodePort, "", false, &otherAddresses
			default:
				return nodePort, n.Name, true, nil
			}
		}
	}
	return 0, "", false, nil
}

// first reports whether an address of a node is its first InternalIP of the family.
func first(all []corev1.NodeAddress, i int) bool {
	own, _ := netip.ParseAddr(all[i].Address)
	return !slices.ContainsFunc(all[:i], func(a corev1.NodeAddress) bool {
		other, err := netip.ParseAddr(a.Address)
		return err == nil && a.Type == corev1.NodeInternalIP && familyOf(other) == familyOf(own)
	})
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// parseRange reads an element of loadBalancerSourceRanges, around which the API allows blanks.
func parseRange(text string) (netip.Prefix, error) { return netip.ParsePrefix(strings.TrimSpace(text)) }
