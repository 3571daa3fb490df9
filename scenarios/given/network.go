// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Alias gives a host another address, one for each family, on its network card. It is never chosen as a source by
// itself, except toward itself.
func Alias(host, v4, v6 string) spec.Action {
	return spec.Action{Name: fmt.Sprintf("address %s|%s on %s", v4, v6, host),
		Run: func(ctx context.Context, w spec.World) error {
			h, err := w.Host(host)
			if err != nil {
				return err
			}
			card, err := h.Netlink().LinkByName("eth0")
			if err != nil {
				return fmt.Errorf("%s: %w", host, err)
			}
			dev := link.Dev{Name: "eth0", Index: card.Attrs().Index}
			for _, f := range w.Lab().Stack().Families() {
				addr, err := netip.ParseAddr(map[lab.Family]string{lab.V4: v4, lab.V6: v6}[f])
				if err != nil {
					return err
				}
				op := link.Addr{Dev: dev, Prefix: netip.PrefixFrom(addr, addr.BitLen()), Spare: true}
				if err := link.Apply(h.NS, op); err != nil {
					return err
				}
				if err := link.Ready(ctx, h.NS, link.Consequences(op)...); err != nil {
					return err
				}
			}
			return nil
		}}
}

// OnPrimaryAddresses asks for a cluster whose nodes serve NodePorts on their primary addresses, and on none of the
// others.
func OnPrimaryAddresses() *spec.Own {
	return &spec.Own{Shared: true, Proxy: spec.ProxyConfig{NodePortAddresses: []netip.Prefix{
		netip.MustParsePrefix("192.168.7.8/29"), netip.MustParsePrefix("fd00:7::10/124"),
	}}}
}

// RouteService makes a host outside of the cluster send what goes to a Service's ClusterIP to a node.
func RouteService(host, service, node string) spec.Action {
	return spec.Action{Name: fmt.Sprintf("route the ClusterIP of %s via %s on %s", service, node, host),
		Run: func(_ context.Context, w spec.World) error {
			ips := map[lab.Family]string{}
			for _, f := range w.Lab().Stack().Families() {
				vip, err := w.Resolve(spec.Target{Kind: spec.VIP, Service: service, Port: 1, RawPort: true}, f, "tcp")
				if err != nil {
					return err
				}
				ips[f] = vip.Addr().String()
			}
			return RouteTo(w, host, ips[lab.V4], ips[lab.V6], node)
		}}
}

// IngressIPs writes the load balancer's status of a Service: these addresses, as far as the cluster has their families,
// all in the same mode.
func IngressIPs(service string, mode corev1.LoadBalancerIPMode, ips ...string) spec.Action {
	return spec.Action{Name: "ingress of Service " + service, Run: func(_ context.Context, w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), service, func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for _, ip := range ips {
				if hasFamily(w, ip) {
					s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
						corev1.LoadBalancerIngress{IP: ip, IPMode: &mode})
				}
			}
		})
	}}
}

func hasFamily(w spec.World, ip string) bool {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return true // for the control plane to refuse
	}
	for _, f := range w.Lab().Stack().Families() {
		if lab.FamilyOf(a) == f {
			return true
		}
	}
	return false
}
