// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// delivery makes the node deliver packets to itself that carry a mark, so that IPVS sees them: a routing rule for the
// mark, and a table whose only route is local. External and load balancer addresses are served in this way, because
// they may belong to another node or to a load balancer, which keeps all other ports (ip-rule(8), ip-route(8) "local").
type delivery struct {
	ns     *netns.NS
	family lab.Family
	// mark is one bit of the packet mark.
	mark uint32
}

// deliveryTable is the routing table, and deliveryPriority the priority of the rule: after that of the table local (0),
// before that of the table main (32766).
const deliveryTable, deliveryPriority = 7430, 400

// deliveryMark returns a bit other than that of masquerading.
func deliveryMark(masquerade uint32) uint32 {
	const usual, other = 0x2000, 0x1000
	if masquerade == usual {
		return other
	}
	return usual
}

func (d *delivery) rule() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority, r.Mark, r.Mask = nodeaddr.Domain(d.family), deliveryTable, deliveryPriority, d.mark,
		&d.mark
	return r
}

// String returns the rule and the route as ip(8) takes them.
func (d *delivery) String() string {
	return fmt.Sprintf("ip rule add priority %d fwmark %#x/%#[2]x lookup %d; "+
		"ip route add local default dev lo table %[3]d", deliveryPriority, d.mark, deliveryTable)
}

// everywhere returns the range of all addresses of the family.
func (d *delivery) everywhere() *net.IPNet {
	bytes := net.IPv4len
	if d.family == lab.V6 {
		bytes = net.IPv6len
	}
	return &net.IPNet{IP: make(net.IP, bytes), Mask: make(net.IPMask, bytes)}
}

// route returns the only route of the table.
func (d *delivery) route() *netlink.Route {
	return &netlink.Route{
		Family: nodeaddr.Domain(d.family), Table: deliveryTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: d.everywhere(),
	}
}

// add adds the rule and the route where they are missing.
func (d *delivery) add() error {
	h := d.ns.Netlink()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return d.failed("find lo", err)
	}
	route := d.route()
	route.LinkIndex = lo.Attrs().Index
	if err := h.RouteReplace(route); err != nil {
		return d.failed("add a local route", err)
	}
	if err := h.RuleAdd(d.rule()); err != nil && !errors.Is(err, unix.EEXIST) {
		return d.failed("add a routing rule", err)
	}
	return nil
}

// intact reports whether the node delivers packets with the mark to itself.
func (d *delivery) intact() (bool, error) {
	somewhere := d.everywhere().IP
	somewhere[0], somewhere[len(somewhere)-1] = 0x20, 1 // a global address: 32.0.0.1, or 2000::1
	routes, err := d.ns.Netlink().RouteGetWithOptions(somewhere, &netlink.RouteGetOptions{Mark: d.mark})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, d.failed("route", err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}

// remove removes the rule and the route.
func (d *delivery) remove() error {
	h := d.ns.Netlink()
	if err := h.RuleDel(d.rule()); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.failed("remove a routing rule", err)
	}
	if err := h.RouteDel(d.route()); err != nil && !errors.Is(err, unix.ESRCH) {
		return d.failed("remove a local route", err)
	}
	return nil
}

func (d *delivery) failed(doing string, err error) error {
	return fmt.Errorf("%s: delivery to %s: %s: %w", d.ns.Name(), d.family, doing, err)
}
