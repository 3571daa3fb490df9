// SPDX-License-Identifier: Apache-2.0

// Package services judges proxiers by generated states and histories of a cluster. Package oracle says what may become
// of every connection; this package generates the states, chooses the questions, asks them with packets as scenarios of
// the engine, and reduces a failure to its smallest case.
package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
)

// Case is a history: the states of a part of the cluster, one after another.
type Case struct {
	// ID is "random-SEED-NUMBER", and the name of its Kubernetes namespace.
	ID     string  `json:"id"`
	States []State `json:"states"`
}

// State is the objects that a user writes. Addresses are written as names, which stand for one address of each family
// of the cluster: that of a pod, or "balancer-N" and "external-N" for one that no host has.
type State struct {
	// Change is what was changed to get from the state before to this one.
	Change string `json:"change,omitempty"`
	// Kinds are the kinds of these changes, for the coverage.
	Kinds []string `json:"kinds,omitempty"`
	// Life is what happens to a proxier while they are made. Nil means nothing.
	Life     *Life             `json:"life,omitempty"`
	Pods     []*corev1.Pod     `json:"pods,omitempty"`
	Services []*corev1.Service `json:"services,omitempty"`
	// Slices are the EndpointSlices without a controller. Each stands for one in each family.
	Slices []*discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Policies are there only if somebody enforces them.
	Policies []*networkingv1.NetworkPolicy `json:"policies,omitempty"`
}

// clone returns a copy of the objects of the state that shares nothing with it.
func (s State) clone() State {
	out := State{Change: s.Change}
	for _, p := range s.Pods {
		out.Pods = append(out.Pods, p.DeepCopy())
	}
	for _, v := range s.Services {
		out.Services = append(out.Services, v.DeepCopy())
	}
	for _, e := range s.Slices {
		out.Slices = append(out.Slices, e.DeepCopy())
	}
	for _, p := range s.Policies {
		out.Policies = append(out.Policies, p.DeepCopy())
	}
	return out
}

// made is the annotation that tells an object from one of the same name in another state: the former is deleted, and
// the latter created.
const made = "viplab.example/made"

// place is where a case is played: it gives names their addresses.
type place struct {
	// slot is the number of the case among those that share a cluster.
	slot     int
	families []lab.Family
	// pod returns the addresses of a pod, none if there is no such pod.
	pod func(name string) []netip.Addr
}

// virtual returns the address of the name "balancer-N" or "external-N" (N from 1 to 3) in a family, or an address that
// is not valid. The ranges are those for benchmarks (RFC 2544) and documentation (RFC 3849).
func (p place) virtual(name string, f lab.Family) netip.Addr {
	kind, text, ok := strings.Cut(name, "-")
	offset, known := map[string]int{"balancer": 0, "external": 4}[kind]
	n, err := number(text)
	if !ok || !known || err != nil || n < 1 || n > 3 {
		return netip.Addr{}
	}
	i := p.slot%(1<<13)*8 + offset + n
	if f == lab.V6 {
		a := netip.MustParseAddr("2001:db8:ba1::").As16()
		a[14], a[15] = byte(i>>8), byte(i)
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
}

func number(text string) (n int, err error) {
	_, err = fmt.Sscanf(text, "%d", &n)
	return n, err
}

// addresses returns the addresses of a name in the families of the cluster. Text that is an address stands for itself.
func (p place) addresses(name string) []netip.Addr {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}
	}
	var out []netip.Addr
	for _, f := range p.families {
		if a := p.virtual(name, f); a.IsValid() {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		out = p.pod(name)
	}
	return out
}

// service returns a Service with addresses in place of names.
func (p place) service(in *corev1.Service) *corev1.Service {
	s := in.DeepCopy()
	s.Spec.ExternalIPs = nil
	for _, name := range in.Spec.ExternalIPs {
		for _, a := range p.addresses(name) {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
		}
	}
	s.Spec.LoadBalancerSourceRanges = nil
	for _, name := range in.Spec.LoadBalancerSourceRanges {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, p.ranges(name)...)
	}
	s.Status.LoadBalancer.Ingress = nil
	for _, entry := range in.Status.LoadBalancer.Ingress {
		if entry.IP == "" {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, entry)
		}
		for _, a := range p.addresses(entry.IP) {
			entry.IP = a.String()
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, entry)
		}
	}
	for _, f := range s.Spec.IPFamilies {
		if !slices.ContainsFunc(p.families, func(has lab.Family) bool { return corev1.IPFamily("IP"+has.String()) == f }) {
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil
			break
		}
	}
	if s.Spec.IPFamilyPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	return s
}

// ranges returns the source ranges of a name: of a pod, or of a range that is written out. A pod that does not exist
// has none, so a range without a host stands for it: no range would allow everybody.
func (p place) ranges(name string) (out []string) {
	if _, err := netip.ParsePrefix(strings.TrimSpace(name)); err == nil {
		return []string{name}
	}
	for _, a := range p.pod(name) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
	}
	if len(out) == 0 {
		return []string{"192.0.2.0/24", "2001:db8:ffff::/48"}
	}
	return out
}

// slices returns the EndpointSlices that a hand-written one stands for, one for each family. Endpoints whose name has
// no address in a family are left out. A slice of type FQDN has one endpoint, a name outside of the cluster.
func (p place) slices(in *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, f := range p.families {
		s := in.DeepCopy()
		s.Name = sliceName(in, f)
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"backend.example.com"}}}
			out = append(out, s)
			continue
		}
		s.AddressType = discoveryv1.AddressType("IP" + f.String())
		s.Endpoints = []discoveryv1.Endpoint{}
		for _, e := range in.Endpoints {
			e := *e.DeepCopy()
			var addrs []string
			for _, name := range e.Addresses {
				for _, a := range p.addresses(name) {
					if lab.FamilyOf(a) == f {
						addrs = append(addrs, a.String())
					}
				}
			}
			if e.Addresses = addrs; len(addrs) > 0 {
				s.Endpoints = append(s.Endpoints, e)
			}
		}
		out = append(out, s)
	}
	return out
}

func sliceName(s *discoveryv1.EndpointSlice, f lab.Family) string {
	return s.Name + "-" + strings.ToLower(f.String())
}

// ready reports whether a pod of a state is ready: it is, unless its status says otherwise.
func ready(p *corev1.Pod) bool {
	return !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue
	})
}

// setReady sets or removes the condition that ready reads.
func setReady(p *corev1.Pod, is bool) {
	p.Status.Conditions = nil
	if !is {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	}
}

// virtualNames returns the names of virtual addresses in a case, in order.
func (c Case) virtualNames() []string {
	names := map[string]bool{}
	for _, s := range c.States {
		for _, svc := range s.Services {
			for _, name := range svc.Spec.ExternalIPs {
				names[name] = true
			}
			for _, in := range svc.Status.LoadBalancer.Ingress {
				names[in.IP] = true
			}
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// via returns the node that the outside client sends a virtual address to.
func via(name string) string {
	_, text, _ := strings.Cut(name, "-")
	n, _ := number(text)
	if strings.HasPrefix(name, "external") {
		n++
	}
	return fmt.Sprintf("n%d", 1+n%3)
}

// proxyMode reports whether an entry of a load balancer has the mode Proxy.
func proxyMode(in corev1.LoadBalancerIngress) bool {
	return ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeProxy
}
