// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// routeProtocol marks the routes of this file (rtnetlink(7), rtm_protocol). No routing program has this number in
// iproute2's list, rt_protos.
const routeProtocol = 74

// localRoute returns the local route to an IPv4 address by lo. A process of the node needs it for path MTU discovery:
// Linux caches the route to a local address only if its device is lo. By the kernel's own route, whose device is that
// of the address, each socket gets a route of its own, and keeps it when the kernel learns of a smaller MTU
// (__mkroute_output and update_or_create_fnhe in net/ipv4/route.c). IPv6 makes no such difference.
func localRoute(a netip.Addr) *netlink.Route {
	return &netlink.Route{
		Family: unix.AF_INET, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		Protocol: routeProtocol, LinkIndex: link.Loopback.Index, Dst: address(a).IPNet,
	}
}

// addRoute adds the local route to an address, before that of the kernel.
func (d *device) addRoute(a netip.Addr) error {
	if a.Is6() {
		return nil
	}
	// Without NLM_F_EXCL and NLM_F_APPEND, a route precedes others to the same range (ip-route(8), "prepend").
	if err := d.ns.Netlink().RouteAddEcmp(localRoute(a)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: add a local route to %s: %w", d.ns.Name(), a, err)
	}
	return nil
}

// removeRoute removes the local route to an address, if it exists.
func (d *device) removeRoute(a netip.Addr) error {
	if a.Is6() {
		return nil
	}
	if err := d.ns.Netlink().RouteDel(localRoute(a)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%s: remove the local route to %s: %w", d.ns.Name(), a, err)
	}
	return nil
}

// routes returns the addresses of the family that have a local route.
func (d *device) routes() (map[netip.Addr]bool, error) {
	if d.family == lab.V6 {
		return nil, nil
	}
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}
	const fields = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL
	all, err := netns.List(func() ([]netlink.Route, error) {
		return d.ns.Netlink().RouteListFiltered(unix.AF_INET, filter, fields)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: local routes: %w", d.ns.Name(), err)
	}
	to := map[netip.Addr]bool{}
	for _, r := range all {
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			to[a.Unmap()] = true
		}
	}
	return to, nil
}

// loadRoutes adds the missing local routes to the addresses of the device, and removes those to others.
func (d *device) loadRoutes() error {
	routes, err := d.routes()
	if err != nil {
		return err
	}
	for a := range d.have {
		if !routes[a] {
			if err := d.addRoute(a); err != nil {
				return err
			}
		}
	}
	for a := range routes {
		if !d.have[a] {
			if err := d.removeRoute(a); err != nil {
				return err
			}
		}
	}
	return nil
}
