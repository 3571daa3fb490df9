// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// addressesOf and nodePortsOf are how many ClusterIPs and NodePorts each case has for itself, so that no other case of
// the cluster gets one that a case has given up, and still asks. They suffice for batch cases.
const addressesOf, nodePortsOf = 64, 43

// numbers gives a case its ClusterIPs and NodePorts. The same key always gets the same number.
type numbers map[string]int

func (n numbers) of(key string) int {
	if _, ok := n[key]; !ok {
		n[key] = len(n)
	}
	return n[key]
}

// allocate sets the ClusterIPs and NodePorts of a Service that it does not have already. A Service that is made anew
// has those of the one before, or others.
func (p *player) allocate(w spec.World, s *corev1.Service) {
	if p.addrs == nil {
		p.addrs, p.ports = numbers{}, numbers{}
	}
	name := s.Name
	if p.anew {
		name = "anew " + name
	}
	if n, err := strconv.Atoi(s.Annotations[made]); err == nil && n%2 == 1 {
		name += fmt.Sprint("#", n)
	}
	old, _ := store.Get[*corev1.Service](w.Store(), w.Namespace(), s.Name)
	if old == nil {
		old = &corev1.Service{}
	}
	if headless := s.Spec.ClusterIP == corev1.ClusterIPNone; !headless && len(old.Spec.ClusterIPs) == 0 &&
		s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.ClusterIPs = p.clusterIPs(w, s, name)
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		p.nodePorts(w, s, old, name)
	}
}

// clusterIPs returns the addresses of a Service in its families.
func (p *player) clusterIPs(w spec.World, s *corev1.Service, name string) []string {
	families := slices.Clone(s.Spec.IPFamilies)
	for _, f := range p.families {
		single := ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack && len(families) > 0
		if family := corev1.IPFamily("IP" + f.String()); !single && !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	number := 1024 + p.slot%batch*addressesOf + p.addrs.of(name)%addressesOf
	var out []string
	for _, f := range families {
		for _, prefix := range w.Store().ServiceCIDRs() {
			if corev1.IPFamily("IP"+lab.FamilyOf(prefix.Addr()).String()) == f {
				out = append(out, offset(prefix.Addr(), uint32(number)).String())
			}
		}
	}
	return out
}

func offset(a netip.Addr, by uint32) netip.Addr {
	b := a.AsSlice()
	low := b[len(b)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+by)
	sum, _ := netip.AddrFromSlice(b)
	return sum
}

// nodePorts sets the NodePorts of a Service, and its health-check port. Ports that keep theirs are left alone.
func (p *player) nodePorts(w spec.World, s, old *corev1.Service, name string) {
	port := func(key string) int32 {
		n := p.ports.of(name + " " + key)
		return w.Store().NodePorts().First + int32(p.slot%batch*nodePortsOf+n%nodePortsOf)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.HealthCheckNodePort == 0 &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = port("health")
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true) {
		return
	}
	for i := range s.Spec.Ports {
		own := &s.Spec.Ports[i]
		keeps := slices.ContainsFunc(old.Spec.Ports, func(was corev1.ServicePort) bool {
			return was.Name == own.Name && was.NodePort != 0
		})
		if !keeps {
			own.NodePort = port(fmt.Sprint(own.Port))
		}
	}
}
