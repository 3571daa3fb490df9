// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// cluster is what selectors select from.
type cluster struct {
	namespaces map[string]labels.Set
	pods       []*member // by namespace and name
}

// member is a pod that packets can be told to belong to.
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

// addresses are those that are the pod's alone: not those of its node, nor those it had before it ended.
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

// newer says which of two pods has an address that both claim: a network plugin gives it away again as soon as the
// former owner is gone, of which the API may tell later.
func newer(a, b *corev1.Pod) bool {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(b2i(a.DeletionTimestamp == nil), b2i(b.DeletionTimestamp == nil)),
		cmp.Compare(revision(a), revision(b)),
	) > 0
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func revision(p *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(p.ResourceVersion, 10, 64) // 0 for one that no API server has seen
	return n
}

// port is the number of a named port of the pod, 0 if it has none of that name and protocol. Containers that have ended
// by the time others start do not count.
func (m *member) port(name string, proto corev1.Protocol) uint16 {
	containers := slices.Clone(m.Spec.Containers)
	for _, c := range m.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
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

// pick picks pods of the namespaces by labels.
func (c *cluster) pick(inNamespace func(string) bool, pods labels.Selector) []*member {
	var out []*member
	for _, m := range c.pods {
		if inNamespace(m.Namespace) && pods.Matches(labels.Set(m.Labels)) {
			out = append(out, m)
		}
	}
	return out
}

// allAddrs are the addresses of pods, in order.
func allAddrs(pods []*member) []netip.Addr {
	var out []netip.Addr
	for _, m := range pods {
		out = append(out, m.addrs...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
