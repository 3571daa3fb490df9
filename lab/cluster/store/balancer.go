// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// balancerFinalizer keeps a Service until its load balancer is gone, as cloud providers have it
// (k8s.io/cloud-provider/service/helpers).
const balancerFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// balance is the controller of a small load balancer: it gives a Service of type LoadBalancer addresses, and takes
// them from one that is no longer of that type or is being deleted. The proxiers of the nodes do the rest.
func (tx *Tx) balance(key Key) {
	svc := tx.s.services.objects[key]
	if svc == nil || len(tx.s.balancers) == 0 || svc.Spec.LoadBalancerClass != nil {
		return
	}
	c := copyOf(svc)
	c.Status.LoadBalancer.Ingress = nil
	c.Finalizers = slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == balancerFinalizer })
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.DeletionTimestamp == nil {
		c.Finalizers = append(c.Finalizers, balancerFinalizer)
		for _, f := range svc.Spec.IPFamilies {
			if ip, ok := tx.s.balancerAddress(svc, f); ok {
				c.Status.LoadBalancer.Ingress = append(c.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
					IP: ip.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP),
				})
			}
		}
	}
	tx.put(ResourceOf(c), c)
	tx.goIfReady(ResourceOf(c), key)
}

// balancerAddress returns the address of a Service: the one that it has, that it asks for (spec.loadBalancerIP), or a
// free one.
func (s *Store) balancerAddress(svc *corev1.Service, f corev1.IPFamily) (netip.Addr, bool) {
	prefix, ok := s.balancers[f]
	if !ok {
		return netip.Addr{}, false
	}
	taken := map[netip.Addr]bool{}
	for _, other := range s.services.objects {
		if KeyOf(other) == KeyOf(svc) {
			continue
		}
		for _, in := range other.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(in.IP); err == nil {
				taken[ip] = true
			}
		}
	}
	wishes := []string{svc.Spec.LoadBalancerIP}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		wishes = append(wishes, in.IP)
	}
	for _, wish := range wishes {
		if ip, err := netip.ParseAddr(wish); err == nil && prefix.Contains(ip) && !taken[ip] && !s.isClusterIP(ip) {
			return ip, true
		}
	}
	for ip := prefix.Addr().Next(); prefix.Contains(ip); ip = ip.Next() {
		if !taken[ip] && !s.isClusterIP(ip) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// isClusterIP reports whether an address is a Service's ClusterIP: a ServiceCIDR may overlap the balancer's range.
func (s *Store) isClusterIP(ip netip.Addr) bool {
	_, ok := s.index.addresses[ip]
	return ok
}
