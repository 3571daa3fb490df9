// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// FromSnapshot returns the cluster in a snapshot of its API. It leaves out pods that have no address, have ended, or
// use their node's network.
func FromSnapshot(s *store.Snapshot) *Cluster {
	c := &Cluster{Namespaces: map[string]map[string]string{}, Policies: s.NetworkPolicies}
	for _, ns := range s.Namespaces {
		c.Namespaces[ns.Name] = ns.Labels
	}
	for _, p := range s.Pods {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if pod := podOf(p); len(pod.Addrs) > 0 {
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

func podOf(p *corev1.Pod) *Pod {
	pod := &Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			pod.Addrs = append(pod.Addrs, a)
		}
	}
	// Init containers may be sidecars, which serve as long as the pod runs.
	for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		pod.Ports = append(pod.Ports, container.Ports...)
	}
	return pod
}
