// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// partialFaults serve a part of what an object lists.
var partialFaults = []Fault{
	{Name: "first-port-alone", Description: "Of the ports of a Service the first alone is served.",
		State: each(func(s *corev1.Service) { s.Spec.Ports = first(s.Spec.Ports) })},
	{Name: "one-protocol-per-port", Description: "Of ports with the same number the first alone is served.",
		State: each(func(s *corev1.Service) {
			seen := map[int32]bool{}
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
				known := seen[p.Port]
				seen[p.Port] = true
				return known
			})
		})},
	{Name: "first-family-lost", Description: "Services are served in their second IP family alone.", BothFamilies: true,
		State: each(func(s *corev1.Service) {
			if len(s.Spec.ClusterIPs) > 1 {
				s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[1:], s.Spec.IPFamilies[1:]
				s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
			}
		})},
	{Name: "first-external-ip-alone", Description: "Of the addresses of spec.externalIPs the first alone is served.",
		BothFamilies: true,
		State:        each(func(s *corev1.Service) { s.Spec.ExternalIPs = first(s.Spec.ExternalIPs) })},
	{Name: "first-ingress-alone", Description: "Of the addresses of a load balancer the first alone is served.",
		BothFamilies: true,
		State: each(func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = first(s.Status.LoadBalancer.Ingress)
		})},
	{Name: "first-source-range-alone", Description: "Of spec.loadBalancerSourceRanges the first alone is accepted.",
		BothFamilies: true,
		State: each(func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = first(s.Spec.LoadBalancerSourceRanges)
		})},
	{Name: "first-hinted-zone-alone", Description: "Of the zones that an endpoint is hinted for the first alone counts.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			if e.Hints != nil {
				e.Hints.ForZones = first(e.Hints.ForZones)
			}
		})},
	{Name: "first-slice-alone", Description: "Of the EndpointSlices of a Service and family the first alone counts.",
		State: firstSliceAlone},
	{Name: "udp-nodeports-lost", Description: "NodePorts of UDP ports are not served.",
		State: each(func(s *corev1.Service) {
			for i, p := range s.Spec.Ports {
				if p.Protocol == corev1.ProtocolUDP {
					s.Spec.Ports[i].NodePort = 0
				}
			}
		})},
	{Name: "balancer-nodeports-lost", Description: "NodePorts of Services of type LoadBalancer are not served.",
		State: each(func(s *corev1.Service) {
			for i := range s.Spec.Ports {
				if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
					s.Spec.Ports[i].NodePort = 0
				}
			}
		})},
}

// first returns the first element of a list, if it has one.
func first[T any](list []T) []T { return list[:min(len(list), 1)] }

func firstSliceAlone() func(store.Object) store.Object {
	type owner struct {
		service store.Key
		family  discoveryv1.AddressType
	}
	chosen := map[owner]string{}
	return stateless(func(o store.Object) store.Object {
		s, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			return o
		}
		of := owner{store.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, s.AddressType}
		if chosen[of] == "" {
			chosen[of] = s.Name
		}
		if chosen[of] != s.Name {
			return nil
		}
		return o
	})()
}
