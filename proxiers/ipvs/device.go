// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// deviceName is the device that has the ClusterIPs, so that the kernel delivers packets to them locally and
// IPVS sees them. It never sends or receives packets, and stays down.
const deviceName = "kube-ipvs0"

// device is that of one family.
type device struct {
	ns     *netns.NS
	family lab.Family
	link   netlink.Link
	// have are the addresses on it.
	have map[netip.Addr]bool
	// late are the IPv6 addresses among them that the kernel may not yet deliver packets to.
	late []link.Condition
}

// load creates the device if it does not exist, reads its addresses, and gives them their routes. The other family may
// do the same concurrently.
func (d *device) load() error {
	err := d.ns.Netlink().LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: deviceName}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: make %s: %w", d.ns.Name(), deviceName, err)
	}
	if d.link, err = d.ns.Netlink().LinkByName(deviceName); err != nil {
		return fmt.Errorf("%s: find %s: %w", d.ns.Name(), deviceName, err)
	}
	if err := d.list(); err != nil {
		return err
	}
	return d.loadRoutes()
}

func (d *device) list() error {
	list, err := netns.List(func() ([]netlink.Addr, error) {
		return d.ns.Netlink().AddrList(d.link, nodeaddr.Domain(d.family))
	})
	if err != nil {
		return fmt.Errorf("%s: addresses of %s: %w", d.ns.Name(), deviceName, err)
	}
	d.have, d.late = map[netip.Addr]bool{}, nil
	for _, l := range list {
		if a, ok := netip.AddrFromSlice(l.IP); ok && !a.Unmap().IsLinkLocalUnicast() {
			d.have[a.Unmap()] = true
		}
	}
	return nil
}

func (d *device) add(a netip.Addr) error {
	if d.have[a] {
		return nil
	}
	if err := d.ns.Netlink().AddrAdd(d.link, address(a)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: %s: add %s: %w", d.ns.Name(), deviceName, a, err)
	}
	if err := d.addRoute(a); err != nil {
		return err
	}
	d.have[a] = true
	if a.Is6() {
		d.late = append(d.late, link.Local{Dev: link.Dev{Name: deviceName, Index: d.link.Attrs().Index}, Addr: a})
	}
	return nil
}

// ready returns when the node accepts packets to all addresses of the device. The kernel takes milliseconds for that.
func (d *device) ready() error {
	late := d.late
	d.late = nil
	return link.Ready(context.Background(), d.ns, late...)
}

// intact reports whether the device exists, and the node accepts packets to an address.
func (d *device) intact(a netip.Addr) (bool, error) {
	_, err := d.ns.Netlink().LinkByIndex(d.link.Attrs().Index)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: find %s: %w", d.ns.Name(), deviceName, err)
	}
	return d.local(a)
}

// local reports whether the node accepts packets to an address.
func (d *device) local(a netip.Addr) (bool, error) {
	routes, err := d.ns.Netlink().RouteGet(a.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: route to %s: %w", d.ns.Name(), a, err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}

func (d *device) remove(a netip.Addr) error {
	if !d.have[a] {
		return nil
	}
	if err := d.removeRoute(a); err != nil {
		return err
	}
	if err := d.ns.Netlink().AddrDel(d.link, address(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: %s: remove %s: %w", d.ns.Name(), deviceName, a, err)
	}
	delete(d.have, a)
	return nil
}

func address(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())}
}
