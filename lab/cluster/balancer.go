// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// balancerRanges are the addresses of Services of type LoadBalancer: those of documentation (RFC 5737, RFC 3849).
var balancerRanges = []netip.Prefix{
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:113::/120"),
}

// BalanceLoads gives Services of type LoadBalancer addresses of 203.0.113.0/24 and 2001:db8:113::/120, and sends what
// the client and the router send there to the nodes. With externalTrafficPolicy Local, only nodes with a ready pod of
// the Service get it, and with session affinity only the first of the nodes.
func BalanceLoads() Option { return func(s *settings) { s.balance = true } }

// WaitBalancer waits until the client and the router send to the nodes what the load balancers' addresses of a revision
// get. It returns an error if a route cannot be made. Without BalanceLoads it returns at once.
func (c *Cluster) WaitBalancer(ctx context.Context, revision uint64) error {
	if !c.balances {
		return nil
	}
	return c.wait(ctx, func() (string, error) {
		if c.routed < revision {
			return "a load balancer's routes are not made", nil
		}
		return "", c.unrouted
	})
}

// balance keeps the routes to load balancers' addresses up to date until the context ends.
func (c *Cluster) balance(ctx context.Context) {
	has := map[netip.Addr][]string{}
	for ctx.Err() == nil {
		s := c.store.Snapshot()
		err := c.reroute(has, c.balanced(s))
		c.mu.Lock()
		c.routed, c.unrouted = s.Revision, err
		c.wakeLocked()
		c.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-c.store.Changed(s.Revision):
		}
	}
}

// reroute changes the routes to load balancers' addresses from those that the client and the router have to those that
// they want. What fails is tried again after the next change of the store.
func (c *Cluster) reroute(has, want map[netip.Addr][]string) error {
	all := maps.Clone(has)
	maps.Copy(all, want)
	var errs []error
	for a := range all {
		if slices.Equal(has[a], want[a]) {
			continue
		}
		if err := c.route(a, want[a]); err != nil {
			errs = append(errs, err)
			continue
		}
		has[a] = want[a]
	}
	return errors.Join(errs...)
}

// balanced returns the nodes that shall get the traffic of each load balancer's address.
func (c *Cluster) balanced(s *store.Snapshot) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, svc := range s.Services {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			ip, err := netip.ParseAddr(in.IP)
			if err != nil || !slices.ContainsFunc(balancerRanges, func(p netip.Prefix) bool { return p.Contains(ip) }) {
				continue
			}
			for _, n := range c.lab.Nodes() {
				if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || servesOn(s, svc, n.Name()) {
					out[ip] = append(out[ip], n.Name())
				}
			}
			if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && len(out[ip]) > 1 {
				out[ip] = out[ip][:1] // each node remembers its own clients, and routers spread connections
			}
		}
	}
	return out
}

// servesOn reports whether a Service has a ready endpoint on a node.
func servesOn(s *store.Snapshot, svc *corev1.Service, node string) bool {
	for _, slice := range s.EndpointSlices {
		if slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.NodeName, "") == node && ptr.Deref(e.Conditions.Ready, true) {
				return true
			}
		}
	}
	return false
}

// route makes the client and the router send an address to nodes; without nodes it takes the route away.
func (c *Cluster) route(a netip.Addr, nodes []string) error {
	for _, h := range []*lab.Host{c.lab.Client(), c.lab.Router()} {
		r := &netlink.Route{Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
		if len(nodes) == 0 {
			if err := h.Netlink().RouteDel(r); err != nil {
				return fmt.Errorf("%s: %w", h.Name(), err)
			}
			continue
		}
		for _, name := range nodes {
			gw := c.lab.Node(name).Addr(lab.FamilyOf(a))
			to, err := h.Netlink().RouteGet(gw.AsSlice())
			if err != nil || len(to) == 0 {
				return fmt.Errorf("%s: no route to %s: %w", h.Name(), gw, err)
			}
			r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: to[0].LinkIndex, Gw: gw.AsSlice()})
		}
		if err := h.Netlink().RouteReplace(r); err != nil {
			return fmt.Errorf("%s: route to %s: %w", h.Name(), a, err)
		}
	}
	return nil
}
