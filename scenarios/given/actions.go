// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Apply creates or updates objects.
func Apply(objects ...store.Object) spec.Action {
	var names []string
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return spec.Action{Name: "apply " + strings.Join(names, ", "), Run: func(_ context.Context, w spec.World) error {
		return w.Apply(objects...)
	}}
}

// Delete deletes an object of the scenario.
func Delete(kind, name string) spec.Action {
	return spec.Action{Name: "delete " + kind + " " + name, Run: func(_ context.Context, w spec.World) error {
		return w.Store().Delete(store.Kind(kind), w.Namespace(), name)
	}}
}

// Edit changes a Service of the scenario.
func Edit(service string, change func(*corev1.Service)) spec.Action {
	return spec.Action{Name: "edit Service " + service, Run: func(_ context.Context, w spec.World) error {
		return store.Update(w.Store(), w.Namespace(), service, change)
	}}
}

// Readiness sets a pod's Ready condition, as its kubelet would after a probe.
func Readiness(pod string, ready bool) spec.Action {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return spec.Action{Name: fmt.Sprintf("pod %s ready=%t", pod, ready), Run: func(_ context.Context, w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), pod, func(p *corev1.Pod) {
			for i := range p.Status.Conditions {
				if p.Status.Conditions[i].Type == corev1.PodReady {
					p.Status.Conditions[i].Status = status
				}
			}
		})
	}}
}

// Serve starts an echo server on a node or an outside host.
func Serve(host, proto string, port uint16) spec.Action {
	return spec.Action{Name: fmt.Sprintf("serve %s/%d on %s", proto, port, host),
		Run: func(_ context.Context, w spec.World) error {
			return w.Serve(host, proto, port)
		}}
}

// Ingress writes the addresses that a load balancer has given to a Service: one for each family of the cluster.
func Ingress(service, v4, v6 string) spec.Action {
	return spec.Action{Name: "ingress of Service " + service, Run: func(ctx context.Context, w spec.World) error {
		var ips []string
		for _, f := range w.Lab().Stack().Families() {
			ips = append(ips, map[lab.Family]string{lab.V4: v4, lab.V6: v6}[f])
		}
		return IngressAt(service, ips...).Run(ctx, w)
	}}
}

// RouteVia makes a host send what goes to an address (one for each family) to one of the nodes; several share it.
func RouteVia(host, v4, v6 string, nodes ...string) spec.Action {
	return spec.Action{Name: fmt.Sprintf("route %s|%s via %s on %s", v4, v6, strings.Join(nodes, ", "), host),
		Run: func(_ context.Context, w spec.World) error { return RouteTo(w, host, v4, v6, nodes...) }}
}

// RouteTo is RouteVia at once.
func RouteTo(w spec.World, host, v4, v6 string, nodes ...string) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	for _, f := range w.Lab().Stack().Families() {
		addr, err := netip.ParseAddr(map[lab.Family]string{lab.V4: v4, lab.V6: v6}[f])
		if err != nil {
			return err
		}
		r := &netlink.Route{Dst: hostNet(addr)}
		for _, n := range nodes {
			gw := w.Lab().Node(n).Addr(f)
			link, err := linkTo(h, gw)
			if err != nil {
				return err
			}
			r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: link, Gw: gw.AsSlice()})
		}
		if err := h.Netlink().RouteReplace(r); err != nil {
			return fmt.Errorf("%s: route %s: %w", host, addr, err)
		}
	}
	return nil
}

// linkTo is the device by which a host reaches a neighbour.
func linkTo(h *lab.Host, to netip.Addr) (int, error) {
	routes, err := h.Netlink().RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("%s: no route to %s: %w", h.Name(), to, err)
	}
	return routes[0].LinkIndex, nil
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Sysctls sets sysctls of a host.
func Sysctls(host string, settings ...netns.Setting) spec.Action {
	return spec.Action{Name: "set sysctls on " + host, Run: func(_ context.Context, w spec.World) error {
		h, err := w.Host(host)
		if err != nil {
			return err
		}
		return h.SetSysctls(settings...)
	}}
}

// ForwardPolicy sets the policy of the filter table's FORWARD chain of a node, through the back end that the proxier
// works with, as an administrator of that machine would.
func ForwardPolicy(node, policy string) spec.Action {
	return spec.Action{Name: "FORWARD policy " + policy + " on " + node,
		Run: func(ctx context.Context, w spec.World) error {
			for _, f := range w.Lab().Stack().Families() {
				if _, err := w.Run(ctx, node, IPTables(w, f), "-w", "-P", "FORWARD", policy); err != nil {
					return err
				}
			}
			return nil
		}}
}

// IPTables is the program that speaks to the same xtables back end as the proxier.
func IPTables(w spec.World, f lab.Family) string {
	name := "iptables-nft"
	if w.Features()[spec.IPTablesLegacy] {
		name = "iptables-legacy"
	}
	if f == lab.V6 {
		name = strings.Replace(name, "iptables", "ip6tables", 1)
	}
	return name
}
