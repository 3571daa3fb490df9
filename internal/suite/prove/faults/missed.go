// SPDX-License-Identifier: Apache-2.0

package faults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// missedFaults overlook one kind of change of an object that they see otherwise.
var missedFaults = []Fault{
	{Name: "external-policy-stays", Description: "A change of externalTrafficPolicy is overlooked.",
		State: keeping(func(last, now *corev1.Service) {
			if last.Spec.ExternalTrafficPolicy != "" && now.Spec.ExternalTrafficPolicy != "" {
				now.Spec.ExternalTrafficPolicy = last.Spec.ExternalTrafficPolicy
			}
		})},
	{Name: "internal-policy-stays", Description: "A change of internalTrafficPolicy is overlooked.",
		State: keeping(func(last, now *corev1.Service) {
			now.Spec.InternalTrafficPolicy = last.Spec.InternalTrafficPolicy
		})},
	{Name: "affinity-stays", Description: "A change of session affinity is overlooked.",
		State: keeping(func(last, now *corev1.Service) {
			now.Spec.SessionAffinity, now.Spec.SessionAffinityConfig =
				last.Spec.SessionAffinity, last.Spec.SessionAffinityConfig
		})},
	{Name: "ingress-stays", Description: "The first addresses of a load balancer are served for ever.",
		State: keeping(func(last, now *corev1.Service) {
			if len(last.Status.LoadBalancer.Ingress) > 0 {
				now.Status.LoadBalancer.Ingress = last.Status.LoadBalancer.Ingress
			}
		})},
	{Name: "virtual-ips-stay", Description: "A load balancer's address that was ipMode VIP first is served for ever.",
		State: keeping(func(last, now *corev1.Service) {
			const vip = corev1.LoadBalancerIPModeVIP
			for i, in := range now.Status.LoadBalancer.Ingress {
				for _, was := range last.Status.LoadBalancer.Ingress {
					if was.IP == in.IP && ptr.Deref(was.IPMode, vip) == vip {
						now.Status.LoadBalancer.Ingress[i].IPMode = ptr.To(vip)
					}
				}
			}
		})},
	{Name: "external-ips-stay", Description: "The first addresses of spec.externalIPs are served for ever.",
		State: keeping(func(last, now *corev1.Service) {
			if len(last.Spec.ExternalIPs) > 0 {
				now.Spec.ExternalIPs = last.Spec.ExternalIPs
			}
		})},
	{Name: "source-ranges-stay", Description: "The first spec.loadBalancerSourceRanges of a Service count for ever.",
		State: keeping(func(last, now *corev1.Service) {
			if len(last.Spec.LoadBalancerSourceRanges) > 0 {
				now.Spec.LoadBalancerSourceRanges = last.Spec.LoadBalancerSourceRanges
			}
		})},
	{Name: "nodeports-stay", Description: "A Service that gives up its NodePorts keeps them.",
		State: keeping(func(last, now *corev1.Service) {
			if last.Spec.Type == corev1.ServiceTypeNodePort && now.Spec.Type == corev1.ServiceTypeClusterIP {
				now.Spec.Type, now.Spec.Ports = last.Spec.Type, last.Spec.Ports
				now.Spec.ExternalTrafficPolicy = last.Spec.ExternalTrafficPolicy
			}
		})},
	{Name: "endpoint-node-stays", Description: "An address stays on the node on which it was first listed.",
		State: asFirstListed(func(first discoveryv1.Endpoint, now *discoveryv1.Endpoint) {
			now.NodeName = first.NodeName
		})},
	{Name: "node-zone-stays", Description: "A node stays in its first zone for ever.",
		State: keeping(func(last, now *corev1.Node) {
			if zone := last.Labels[corev1.LabelTopologyZone]; zone != "" {
				now.Labels[corev1.LabelTopologyZone] = zone
			}
		})},
}

// keeping returns a State that changes each new version of an object to keep something of the last shown one.
func keeping[T interface {
	store.Object
	DeepCopy() T
}](change func(last, now T)) State {
	return remembering(func(last, now T) T {
		now = now.DeepCopy()
		change(last, now)
		return now
	})
}

// asFirstListed returns a State that changes each endpoint to keep something of the first one with its address.
func asFirstListed(change func(first discoveryv1.Endpoint, now *discoveryv1.Endpoint)) State {
	return func() func(store.Object) store.Object {
		listed := map[string]discoveryv1.Endpoint{}
		return eachEndpoint(func(e *discoveryv1.Endpoint) {
			first, known := listed[e.Addresses[0]]
			if !known {
				listed[e.Addresses[0]] = *e
				return
			}
			change(first, e)
		})()
	}
}
