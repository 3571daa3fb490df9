// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Resolve returns a target's address and port in the family. For a deleted Service it uses the last known addresses.
func (s *scope) Resolve(to spec.Target, family lab.Family, proto string) (netip.AddrPort, error) {
	addr, err := s.address(to, family)
	port := to.Port
	if err == nil && (to.Kind == spec.VIP && !to.RawPort || to.Kind == spec.NodePortOf) {
		var p corev1.ServicePort
		p, err = s.servicePort(to, proto)
		if to.Kind == spec.NodePortOf {
			port = uint16(p.NodePort)
		}
	}
	switch {
	case err != nil:
		return netip.AddrPort{}, spec.HarnessErrorf("resolve %s: %w", to, err)
	case port == 0:
		return netip.AddrPort{}, spec.HarnessErrorf("resolve %s: it has no port", to)
	}
	return netip.AddrPortFrom(addr, port), nil
}

// address returns a target without its port.
func (s *scope) address(to spec.Target, family lab.Family) (addr netip.Addr, err error) {
	switch to.Kind {
	case spec.VIP:
		addr, err = s.clusterIP(to.Service, family)
	case spec.Ingress:
		addr, err = s.ingress(to.Service, family)
	case spec.Literal:
		addr, err = netip.ParseAddr(map[lab.Family]string{lab.V4: to.V4, lab.V6: to.V6}[family])
	default:
		addr, err = s.hostAddr(to, family)
	}
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("it has no %s address", family)
	}
	return addr, err
}

// service returns a Service. For a deleted one it returns the object of its last resolution.
func (s *scope) service(name string) (*corev1.Service, error) {
	svc, ok := store.Get[*corev1.Service](s.Store(), s.namespace, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.lastSeen[name] = svc
	}
	if svc = s.lastSeen[name]; svc != nil {
		return svc, nil
	}
	return nil, fmt.Errorf("there is no Service %s", name)
}

func (s *scope) clusterIP(service string, family lab.Family) (netip.Addr, error) {
	svc, err := s.service(service)
	if err != nil {
		return netip.Addr{}, err
	}
	return addrOf(svc.Spec.ClusterIPs, family), nil
}

func (s *scope) ingress(service string, family lab.Family) (netip.Addr, error) {
	svc, err := s.service(service)
	if err != nil {
		return netip.Addr{}, err
	}
	var ips []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		ips = append(ips, i.IP)
	}
	return addrOf(ips, family), nil
}

func (s *scope) servicePort(to spec.Target, proto string) (corev1.ServicePort, error) {
	svc, err := s.service(to.Service)
	if err != nil {
		return corev1.ServicePort{}, err
	}
	for _, p := range svc.Spec.Ports {
		if p.Port == int32(to.Port) && strings.EqualFold(string(p.Protocol), proto) {
			return p, nil
		}
	}
	return corev1.ServicePort{}, fmt.Errorf("the Service has no port %d/%s", to.Port, proto)
}

func (s *scope) hostAddr(to spec.Target, family lab.Family) (netip.Addr, error) {
	h, err := s.Host(to.Host)
	if err != nil {
		return netip.Addr{}, err
	}
	switch to.HostAddr {
	case spec.Loopback:
		if family == lab.V6 {
			return netip.IPv6Loopback(), nil
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case spec.Secondary:
		primary := h.Addr(family)
		for _, a := range h.Addrs() {
			if lab.FamilyOf(a) == family && a != primary {
				return a, nil
			}
		}
		return netip.Addr{}, nil
	default:
		return h.Addr(family), nil
	}
}

func addrOf(ips []string, family lab.Family) netip.Addr {
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && lab.FamilyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}
