// SPDX-License-Identifier: Apache-2.0

package link

import (
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
// neighbour table, which all namespaces of a machine share (net.ipv4.neigh.default.gc_thresh3).
type Neighbour struct {
	Addr netip.Addr
	MAC  MAC
	Dev  Dev
}

func (n Neighbour) String() string {
	return fmt.Sprintf("neighbour %s at %s dev %s", n.Addr, n.MAC, n.Dev.Name)
}

func (n Neighbour) encode(r *request) {
	r.neighbour(byte(netns.Domain(n.Addr)), 0, n)
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
