// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Route is a route in the main table.
type Route struct {
	To netip.Prefix
	// Via is the next hop; without one the destination is on the link.
	Via netip.Addr
	Dev Dev
	// OnLink skips the check that the next hop is reachable over the device: that of a tunnel never is.
	OnLink bool
	// Outer, for the device of a Tunnel6, is the address to wrap packets to.
	Outer netip.Addr
	// Blackhole drops instead, silently; Via and Dev do not matter then.
	Blackhole bool
}

func (t Route) String() string {
	if t.Blackhole {
		return "blackhole route " + t.To.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "route %s", t.To)
	if t.Outer.IsValid() {
		fmt.Fprintf(&b, " encap ip6 dst %s", t.Outer)
	}
	if t.Via.IsValid() {
		fmt.Fprintf(&b, " via %s", t.Via)
	}
	fmt.Fprintf(&b, " dev %s", t.Dev.Name)
	return b.String()
}

func (t Route) encode(r *request) {
	scope, kind, flags := byte(unix.RT_SCOPE_UNIVERSE), byte(unix.RTN_UNICAST), uint32(0)
	if !t.Via.IsValid() && t.To.Addr().Is4() {
		scope = unix.RT_SCOPE_LINK
	}
	if t.Blackhole {
		scope, kind = unix.RT_SCOPE_UNIVERSE, unix.RTN_BLACKHOLE
	}
	if t.OnLink {
		flags = unix.RTNH_F_ONLINK
	}
	r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func() {
		// struct rtmsg
		r.b = append(r.b, byte(netns.Domain(t.To.Addr())), byte(t.To.Bits()), 0, 0)
		r.b = append(r.b, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, kind)
		r.b = host.AppendUint32(r.b, flags)
		r.addr(unix.RTA_DST, t.To.Addr())
		if t.Via.IsValid() {
			r.addr(unix.RTA_GATEWAY, t.Via)
		}
		if !t.Blackhole {
			r.u32(unix.RTA_OIF, uint32(t.Dev.Index))
		}
		if t.Outer.IsValid() {
			r.bytes(unix.RTA_ENCAP_TYPE, []byte{lwtunnelEncapIP6, 0})
			r.nest(unix.RTA_ENCAP, func() {
				r.addr(lwtunnelIP6Dst, t.Outer)
				r.u8(lwtunnelIP6HopLimit, 64)
			})
		}
	})
}

// From include/uapi/linux/lwtunnel.h.
const (
	lwtunnelEncapIP6    = 4
	lwtunnelIP6Dst      = 2
	lwtunnelIP6HopLimit = 4
)

// Neighbour is a permanent neighbour entry. It needs no resolution and does not count against the limit of the
// neighbour table, which all namespaces of a machine share (net.ipv4.neigh.default.gc_thresh3). It may be a router:
// every 30 s the kernel forgets the path MTUs of IPv6 behind a gateway whose entry does not say so
// (rt6_age_examine_exception of net/ipv6/route.c), and such a gateway would refuse the next large datagram once more.
type Neighbour struct {
	Addr netip.Addr
	MAC  MAC
	Dev  Dev
}

func (n Neighbour) String() string {
	return fmt.Sprintf("neighbour %s at %s dev %s", n.Addr, n.MAC, n.Dev.Name)
}

func (n Neighbour) encode(r *request) {
	flags := byte(0)
	if n.Addr.Is6() {
		flags = unix.NTF_ROUTER
	}
	r.neighbour(byte(netns.Domain(n.Addr)), flags, n)
}

// Forward is an entry in the forwarding table of a VXLAN device, which sends frames for the MAC to the address.
type Forward struct {
	MAC MAC
	To  netip.Addr
	Dev Dev
}

func (f Forward) String() string {
	return fmt.Sprintf("forward %s to %s dev %s", f.MAC, f.To, f.Dev.Name)
}

func (f Forward) encode(r *request) {
	r.neighbour(unix.AF_BRIDGE, unix.NTF_SELF, Neighbour{f.To, f.MAC, f.Dev})
}

func (r *request) neighbour(family, flags byte, n Neighbour) {
	r.message(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func() {
		r.b = append(r.b, family, 0, 0, 0) // struct ndmsg
		r.b = host.AppendUint32(r.b, uint32(n.Dev.Index))
		r.b = host.AppendUint16(r.b, unix.NUD_PERMANENT)
		r.b = append(r.b, flags, 0)
		r.addr(unix.NDA_DST, n.Addr)
		r.bytes(unix.NDA_LLADDR, n.MAC[:])
	})
}

// VXLAN makes a device that wraps frames in UDP, and sets it up. It learns no MACs, but needs Forward entries.
type VXLAN struct {
	Dev
	MAC  MAC
	MTU  int
	ID   int
	Port uint16
	// Local is the outer source address.
	Local netip.Addr
}

func (v VXLAN) String() string { return fmt.Sprintf("vxlan device %s, id %d", v.Name, v.ID) }

func (v VXLAN) encode(r *request) {
	local := uint16(unix.IFLA_VXLAN_LOCAL)
	if v.Local.Is6() {
		local = unix.IFLA_VXLAN_LOCAL6
	}
	r.newLink(v.Dev, unix.IFF_UP, "vxlan", func() { r.hardware(v.MAC, v.MTU) }, func() {
		r.u32(unix.IFLA_VXLAN_ID, uint32(v.ID))
		r.u8(unix.IFLA_VXLAN_LEARNING, 0)
		r.bytes(unix.IFLA_VXLAN_PORT, []byte{byte(v.Port >> 8), byte(v.Port)})
		r.addr(local, v.Local)
	})
}

// Tunnel4 makes an IPIP device that wraps to the next hop of the route. Use Ensure: the kernel may have one already.
type Tunnel4 struct{ Dev }

func (t Tunnel4) String() string { return "ipip device " + t.Name }

// encode sends no parameters, so that the device is the same as the kernel's own fallback device tunl0.
func (t Tunnel4) encode(r *request) {
	r.newLink(t.Dev, 0, "ipip", nil, nil)
}

// Tunnel6 makes an IPv6-in-IPv6 device without endpoints of its own: the Outer of a route says where a packet is
// wrapped to. IPv6 has no next hops over a tunnel as IPv4 has: it refuses one that another device leads to.
type Tunnel6 struct{ Dev }

func (t Tunnel6) String() string { return "ip6tnl device " + t.Name }

func (t Tunnel6) encode(r *request) {
	r.newLink(t.Dev, 0, "ip6tnl", nil, func() { r.bytes(iptunCollectMetadata, nil) })
}

const iptunCollectMetadata = 19 // IFLA_IPTUN_COLLECT_METADATA, include/uapi/linux/if_tunnel.h

// Tune sets a device up with an MTU.
type Tune struct {
	Dev
	MTU int
}

func (t Tune) String() string { return fmt.Sprintf("%s up, mtu %d", t.Name, t.MTU) }

func (t Tune) encode(r *request) {
	r.setUp(t.Dev, func() { r.u32(unix.IFLA_MTU, uint32(t.MTU)) })
}

// Ensure makes the change unless a device of that name exists, and returns the device. Tunnel modules put a fallback
// device into every namespace (unless net.core.fb_tunnels_only_for_init_net forbids), some while they are loaded.
func Ensure(ns *netns.NS, d Dev, op Op) (Dev, error) {
	err := Apply(ns, op)
	if err == nil {
		return d, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return Dev{}, err
	}
	state, err := query(ns, Dev{Name: d.Name})
	if err != nil {
		return Dev{}, fmt.Errorf("%s: device %s: %w", ns.Name(), d.Name, err)
	}
	return Dev{Name: d.Name, Index: state.index}, nil
}
