// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// cluster holds what selectors select from.
type cluster struct {
	namespaces map[string]labels.Set
	pods       []*member // by namespace and name
}

// member is a pod with addresses of its own.
type member struct {
	*corev1.Pod
	addrs []netip.Addr
}

func newCluster(namespaces []*corev1.Namespace, pods []*corev1.Pod) *cluster {
	c := &cluster{namespaces: map[string]labels.Set{}}
	for _, ns := range namespaces {
		c.namespaces[ns.Name] = ns.Labels
	}
	owner := map[netip.Addr]*corev1.Pod{}
	for _, p := range pods {
		for _, a := range addresses(p) {
			if owner[a] == nil || newer(p, owner[a]) {
				owner[a] = p
			}
		}
	}
	for _, p := range pods {
		m := &member{Pod: p, addrs: slices.DeleteFunc(addresses(p), func(a netip.Addr) bool { return owner[a] != p })}
		if len(m.addrs) > 0 {
			c.pods = append(c.pods, m)
		}
	}
	return c
}

// addresses returns the pod's own addresses: none on the host network, and none after it has ended.
func addresses(p *corev1.Pod) []netip.Addr {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	var out []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	add(p.Status.PodIP)
	for _, ip := range p.Status.PodIPs {
		add(ip.IP)
	}
	return out
}

// newer reports whether a owns an address that both pods claim: a network plugin reuses an address as soon as its
// former owner is gone, which the API may report later.
func newer(a, b *corev1.Pod) bool {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(deleted(b), deleted(a)),
		cmp.Compare(revision(a), revision(b)),
	) > 0
}

func deleted(p *corev1.Pod) int {
	if p.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

func revision(p *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(p.ResourceVersion, 10, 64) // 0 for one that no API server has seen
	return n
}

// port returns the number of a named port of the pod, 0 if it has none of that name and protocol. Init containers that
// end before the others start do not count.
func (m *member) port(name string, proto corev1.Protocol) uint16 {
	containers := slices.Clone(m.Spec.Containers)
	for _, c := range m.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == proto {
				return uint16(p.ContainerPort)
			}
		}
	}
	return 0
}

// pick returns the pods with the labels in the namespaces.
func (c *cluster) pick(inNamespace func(string) bool, pods labels.Selector) []*member {
	var out []*member
	for _, m := range c.pods {
		if inNamespace(m.Namespace) && pods.Matches(labels.Set(m.Labels)) {
			out = append(out, m)
		}
	}
	return out
}

// allAddrs returns the sorted addresses of pods.
func allAddrs(pods []*member) []netip.Addr {
	var out []netip.Addr
	for _, m := range pods {
		out = append(out, m.addrs...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
