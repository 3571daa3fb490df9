// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// relayAddrs are the addresses of the relays of every node, on its loopback device. The IPv6 one spells "viplab".
var relayAddrs = map[lab.Family]netip.Addr{
	lab.V4: netip.MustParseAddr("169.254.118.1"),
	lab.V6: netip.MustParseAddr("fd76:6970:6c61:62::1"),
}

// addAddress gives a node the address, and returns when the node accepts packets to it. The address is never the source
// of other packets of the node: in IPv4 because of its scope, in IPv6 because it is deprecated from the start.
func addAddress(ctx context.Context, ns *netns.NS, a netip.Addr) error {
	lo, addr, err := onLoopback(ns, a)
	if err == nil {
		err = ns.Netlink().AddrReplace(lo, addr)
	}
	if err == nil && a.Is6() {
		err = link.Ready(ctx, ns, link.Local{Dev: link.Loopback, Addr: a})
	}
	if err != nil {
		return fmt.Errorf("%s: add %s to the loopback device: %w", ns.Name(), a, err)
	}
	return nil
}

// removeAddress removes the address, if it exists.
func removeAddress(ns *netns.NS, a netip.Addr) error {
	lo, addr, err := onLoopback(ns, a)
	if err == nil {
		err = ns.Netlink().AddrDel(lo, addr)
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: remove %s from the loopback device: %w", ns.Name(), a, err)
	}
	return nil
}

func onLoopback(ns *netns.NS, a netip.Addr) (netlink.Link, *netlink.Addr, error) {
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		return nil, nil, err
	}
	addr := &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())}
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_HOST
	} else {
		addr.ValidLft, addr.PreferedLft = math.MaxUint32, 0 // valid for ever, never preferred
		addr.Flags = unix.IFA_F_NODAD
	}
	return lo, addr, nil
}
