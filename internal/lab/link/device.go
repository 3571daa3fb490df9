// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Veth makes a pair of devices, both down, each in its namespace: moving one later costs an RCU grace period (16 ms).
type Veth struct {
	Dev
	MAC  MAC
	MTU  int
	Peer Peer
}

// Peer is the other end of a Veth.
type Peer struct {
	Dev
	MAC MAC
	NS  *netns.NS
}

func (v Veth) String() string {
	return fmt.Sprintf("veth %s to %s:%s", v.Name, v.Peer.NS.Name(), v.Peer.Name)
}

func (v Veth) encode(r *request) {
	r.newLink(v.Dev, 0, "veth", func() { v.end(r, v.MAC) }, func() {
		r.nest(vethInfoPeer, func() {
			r.ifinfo(0, v.Peer.Index, 0, 0)
			r.text(unix.IFLA_IFNAME, v.Peer.Name)
			v.end(r, v.Peer.MAC)
			r.u32(unix.IFLA_NET_NS_FD, uint32(v.Peer.NS.Fd()))
		})
	})
}

// end adds what both ends have. One queue instead of one per CPU saves a third of the time it takes to make them.
func (v Veth) end(r *request, mac MAC) {
	r.hardware(mac, v.MTU)
	r.u32(unix.IFLA_NUM_TX_QUEUES, 1)
	r.u32(unix.IFLA_NUM_RX_QUEUES, 1)
}

const vethInfoPeer = 1 // VETH_INFO_PEER, include/uapi/linux/veth.h

// Bridge makes a bridge and sets it up, without spanning tree and multicast snooping (which swallows solicitations).
type Bridge struct {
	Dev
	MAC MAC
	MTU int
}

func (b Bridge) String() string { return "bridge " + b.Name }

func (b Bridge) encode(r *request) {
	r.newLink(b.Dev, unix.IFF_UP, "bridge", func() { r.hardware(b.MAC, b.MTU) },
		func() { r.u8(unix.IFLA_BR_MCAST_SNOOPING, 0) })
}

// newLink makes a device of a kind. The attributes are of any device, the data are of its kind; both may be nil.
func (r *request) newLink(d Dev, flags uint32, kind string, attributes, data func()) {
	r.message(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func() {
		r.ifinfo(0, d.Index, flags, flags)
		r.text(unix.IFLA_IFNAME, d.Name)
		if attributes != nil {
			attributes()
		}
		r.nest(unix.IFLA_LINKINFO, func() {
			r.text(unix.IFLA_INFO_KIND, kind)
			if data != nil {
				r.nest(unix.IFLA_INFO_DATA, data)
			}
		})
	})
}

func (r *request) hardware(mac MAC, mtu int) {
	r.bytes(unix.IFLA_ADDRESS, mac[:])
	r.u32(unix.IFLA_MTU, uint32(mtu))
}

// Quiet keeps the kernel from adding a link-local address to a device that is set up.
type Quiet struct{ Dev }

func (q Quiet) String() string { return "no automatic addresses on " + q.Name }

func (q Quiet) encode(r *request) {
	r.message(unix.RTM_SETLINK, 0, func() {
		r.ifinfo(0, q.Index, 0, 0)
		r.nest(unix.IFLA_AF_SPEC, func() {
			r.nest(unix.AF_INET6, func() { r.u8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenModeNone) })
		})
	})
}

const addrGenModeNone = 1 // IN6_ADDR_GEN_MODE_NONE, include/uapi/linux/if_link.h

// Up sets a device up.
type Up struct{ Dev }

func (u Up) String() string    { return u.Name + " up" }
func (u Up) encode(r *request) { r.setUp(u.Dev, func() {}) }

// setUp sets a device up and changes attributes of it.
func (r *request) setUp(d Dev, attributes func()) {
	r.message(unix.RTM_NEWLINK, 0, func() {
		r.ifinfo(0, d.Index, unix.IFF_UP, unix.IFF_UP)
		attributes()
	})
}

// Down sets a device down.
type Down struct{ Dev }

func (d Down) String() string { return d.Name + " down" }

func (d Down) encode(r *request) {
	r.message(unix.RTM_NEWLINK, 0, func() { r.ifinfo(0, d.Index, 0, unix.IFF_UP) })
}

// Port sets a device up as a port of a bridge.
type Port struct {
	Dev
	Bridge Dev
}

func (p Port) String() string { return fmt.Sprintf("%s up, port of %s", p.Name, p.Bridge.Name) }

func (p Port) encode(r *request) {
	r.setUp(p.Dev, func() { r.u32(unix.IFLA_MASTER, uint32(p.Bridge.Index)) })
}

// Disable makes a bridge port carry nothing. Taking it out of the bridge would cost an RCU grace period.
type Disable struct{ Dev }

func (d Disable) String() string { return "disable port " + d.Name }

func (d Disable) encode(r *request) {
	r.setBridgePort(d.Dev, func() {
		r.u8(unix.IFLA_BRPORT_STATE, portDisabled)
		r.bytes(unix.IFLA_BRPORT_FLUSH, nil)
	})
}

const portDisabled = 0 // BR_STATE_DISABLED, include/uapi/linux/if_bridge.h

// Hairpin lets a bridge port send a frame back out of itself, as a pod needs that reaches itself through a Service.
type Hairpin struct{ Dev }

func (h Hairpin) String() string { return "hairpin on port " + h.Name }

func (h Hairpin) encode(r *request) {
	r.setBridgePort(h.Dev, func() { r.u8(unix.IFLA_BRPORT_MODE, 1) })
}

func (r *request) setBridgePort(d Dev, attributes func()) {
	r.message(unix.RTM_SETLINK, 0, func() {
		r.ifinfo(unix.AF_BRIDGE, d.Index, 0, 0)
		r.nest(unix.IFLA_PROTINFO, attributes)
	})
}

// ProxyARP sets a device up that answers ARP requests for every address to which the namespace has a route.
type ProxyARP struct{ Dev }

func (p ProxyARP) String() string { return p.Name + " up, with proxy ARP" }

func (p ProxyARP) encode(r *request) {
	r.setUp(p.Dev, func() {
		r.nest(unix.IFLA_AF_SPEC, func() {
			r.nest(unix.AF_INET, func() {
				r.nest(iflaInetConf, func() { r.u32(devconfProxyARP, 1) })
			})
		})
	})
}

const (
	iflaInetConf    = 1 // IFLA_INET_CONF, include/uapi/linux/if_link.h
	devconfProxyARP = 3 // IPV4_DEVCONF_PROXY_ARP, include/uapi/linux/ip.h
)

// PromptProxy removes the random delay (up to 0.8 s) before a proxied ARP answer. There is no default to set it in.
type PromptProxy struct{ Dev }

func (p PromptProxy) String() string { return "no proxy ARP delay on " + p.Name }

func (p PromptProxy) encode(r *request) {
	r.message(unix.RTM_SETNEIGHTBL, 0, func() {
		r.b = append(r.b, unix.AF_INET, 0, 0, 0) // struct ndtmsg
		r.text(ndtaName, "arp_cache")
		r.nest(ndtaParms, func() {
			r.u32(ndtpaIfindex, uint32(p.Index))
			r.bytes(ndtpaProxyDelay, make([]byte, 8)) // u64, milliseconds
		})
	})
}

// From include/uapi/linux/neighbour.h.
const (
	ndtaName        = 1
	ndtaParms       = 6
	ndtpaIfindex    = 1
	ndtpaProxyDelay = 13
)

// Delete deletes a device, and the other end of a veth. It costs an RCU grace period (about 17 ms).
type Delete struct{ Dev }

func (d Delete) String() string { return "delete " + d.Name }

func (d Delete) encode(r *request) {
	r.message(unix.RTM_DELLINK, 0, func() { r.ifinfo(0, d.Index, 0, 0) })
}

// Addr adds an address to a device.
type Addr struct {
	Dev
	Prefix netip.Prefix
	// Spare addresses are never chosen as a source, as all but the first of an IPv4 subnet. An IPv6 one is deprecated.
	Spare bool
}

func (a Addr) String() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Name) }

func (a Addr) encode(r *request) {
	addr := a.Prefix.Addr()
	flags, scope := byte(0), byte(unix.RT_SCOPE_UNIVERSE)
	if addr.Is6() {
		flags = unix.IFA_F_NODAD
	}
	if addr.IsLinkLocalUnicast() {
		scope = unix.RT_SCOPE_LINK
	}
	r.message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func() {
		r.b = append(r.b, byte(netns.Domain(addr)), byte(a.Prefix.Bits()), flags, scope) // struct ifaddrmsg
		r.b = host.AppendUint32(r.b, uint32(a.Index))
		r.addr(unix.IFA_LOCAL, addr)
		r.addr(unix.IFA_ADDRESS, addr)
		if a.Spare && addr.Is6() {
			cache := [16]byte{4: 0xff, 0xff, 0xff, 0xff} // struct ifa_cacheinfo: never preferred, valid for ever
			r.bytes(unix.IFA_CACHEINFO, cache[:])
		}
	})
}
