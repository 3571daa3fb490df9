// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Veth makes a pair of devices, both down. The other end is made in place, in the namespace it belongs to: to move it
// there later would cost an RCU grace period (about 16 ms) each.
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
	m := r.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.link(0, v.Index, 0, 0)
	v.end(r, v.Dev, v.MAC)
	info := r.open(unix.IFLA_LINKINFO)
	r.text(unix.IFLA_INFO_KIND, "veth")
	data := r.open(unix.IFLA_INFO_DATA)
	peer := r.open(vethInfoPeer)
	r.link(0, v.Peer.Index, 0, 0)
	v.end(r, v.Peer.Dev, v.Peer.MAC)
	r.u32(unix.IFLA_NET_NS_FD, uint32(v.Peer.NS.Fd()))
	r.shut(peer)
	r.shut(data)
	r.shut(info)
	r.end(m)
}

// end adds what both ends have. One queue each instead of one per CPU saves a third of the time it takes to make them.
func (v Veth) end(r *request, d Dev, mac MAC) {
	r.text(unix.IFLA_IFNAME, d.Name)
	r.bytes(unix.IFLA_ADDRESS, mac[:])
	r.u32(unix.IFLA_MTU, uint32(v.MTU))
	r.u32(unix.IFLA_NUM_TX_QUEUES, 1)
	r.u32(unix.IFLA_NUM_RX_QUEUES, 1)
}

const vethInfoPeer = 1 // VETH_INFO_PEER, include/uapi/linux/veth.h

// Bridge makes a bridge and sets it up: no spanning tree, no multicast snooping (which would swallow neighbour
// solicitations until somebody asks who listens).
type Bridge struct {
	Dev
	MAC MAC
	MTU int
}

func (b Bridge) String() string { return "bridge " + b.Name }

func (b Bridge) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.link(0, b.Index, unix.IFF_UP, unix.IFF_UP)
	r.text(unix.IFLA_IFNAME, b.Name)
	r.bytes(unix.IFLA_ADDRESS, b.MAC[:])
	r.u32(unix.IFLA_MTU, uint32(b.MTU))
	info := r.open(unix.IFLA_LINKINFO)
	r.text(unix.IFLA_INFO_KIND, "bridge")
	data := r.open(unix.IFLA_INFO_DATA)
	r.u8(unix.IFLA_BR_MCAST_SNOOPING, 0)
	r.shut(data)
	r.shut(info)
	r.end(m)
}

// Quiet keeps the kernel from making up a link-local address for a device when that is set up.
type Quiet struct{ Dev }

func (q Quiet) String() string { return "no automatic addresses on " + q.Name }

func (q Quiet) encode(r *request) {
	m := r.begin(unix.RTM_SETLINK, 0)
	r.link(0, q.Index, 0, 0)
	spec := r.open(unix.IFLA_AF_SPEC)
	inet6 := r.open(unix.AF_INET6)
	r.u8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenModeNone)
	r.shut(inet6)
	r.shut(spec)
	r.end(m)
}

const addrGenModeNone = 1 // IN6_ADDR_GEN_MODE_NONE, include/uapi/linux/if_link.h

// Up sets a device up.
type Up struct{ Dev }

func (u Up) String() string { return u.Name + " up" }

func (u Up) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, 0)
	r.link(0, u.Index, unix.IFF_UP, unix.IFF_UP)
	r.end(m)
}

// Down sets a device down.
type Down struct{ Dev }

func (d Down) String() string { return d.Name + " down" }

func (d Down) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, 0)
	r.link(0, d.Index, 0, unix.IFF_UP)
	r.end(m)
}

// Port sets a device up as a port of a bridge.
type Port struct {
	Dev
	Bridge Dev
}

func (p Port) String() string { return fmt.Sprintf("%s up, port of %s", p.Name, p.Bridge.Name) }

func (p Port) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, 0)
	r.link(0, p.Index, unix.IFF_UP, unix.IFF_UP)
	r.u32(unix.IFLA_MASTER, uint32(p.Bridge.Index))
	r.end(m)
}

// Disable makes a bridge port carry nothing, and the bridge forget whom it has met there. To take it out of the bridge
// would cost an RCU grace period.
type Disable struct{ Dev }

func (d Disable) String() string { return "disable port " + d.Name }

func (d Disable) encode(r *request) {
	bridgePort(r, d.Dev, func() {
		r.u8(unix.IFLA_BRPORT_STATE, portDisabled)
		r.bytes(unix.IFLA_BRPORT_FLUSH, nil)
	})
}

const portDisabled = 0 // BR_STATE_DISABLED, include/uapi/linux/if_bridge.h

// Hairpin lets a bridge port send a frame back to where it came from: a pod that reaches itself through a Service.
type Hairpin struct{ Dev }

func (h Hairpin) String() string { return "hairpin on port " + h.Name }

func (h Hairpin) encode(r *request) {
	bridgePort(r, h.Dev, func() { r.u8(unix.IFLA_BRPORT_MODE, 1) })
}

// bridgePort changes what a bridge knows of a port.
func bridgePort(r *request, d Dev, attributes func()) {
	m := r.begin(unix.RTM_SETLINK, 0)
	r.link(unix.AF_BRIDGE, d.Index, 0, 0)
	port := r.open(unix.IFLA_PROTINFO | unix.NLA_F_NESTED)
	attributes()
	r.shut(port)
	r.end(m)
}

// ProxyARP sets a device up that answers ARP requests for addresses the namespace has a route to.
type ProxyARP struct{ Dev }

func (p ProxyARP) String() string { return p.Name + " up, with proxy ARP" }

func (p ProxyARP) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, 0)
	r.link(0, p.Index, unix.IFF_UP, unix.IFF_UP)
	spec := r.open(unix.IFLA_AF_SPEC)
	inet := r.open(unix.AF_INET)
	conf := r.open(iflaInetConf)
	r.u32(devconfProxyARP, 1)
	r.shut(conf)
	r.shut(inet)
	r.shut(spec)
	r.end(m)
}

const (
	iflaInetConf    = 1 // IFLA_INET_CONF, include/uapi/linux/if_link.h
	devconfProxyARP = 3 // IPV4_DEVCONF_PROXY_ARP, include/uapi/linux/ip.h
)

// PromptProxy takes away the random delay (up to 0.8 s) before a proxied ARP answer. The setting is per device: a
// namespace other than the first has no default of its own.
type PromptProxy struct{ Dev }

func (p PromptProxy) String() string { return "no proxy ARP delay on " + p.Name }

func (p PromptProxy) encode(r *request) {
	m := r.begin(unix.RTM_SETNEIGHTBL, 0)
	r.b = append(r.b, unix.AF_INET, 0, 0, 0) // struct ndtmsg
	r.text(ndtaName, "arp_cache")
	parms := r.open(ndtaParms)
	r.u32(ndtpaIfindex, uint32(p.Index))
	r.bytes(ndtpaProxyDelay, make([]byte, 8)) // u64, milliseconds
	r.shut(parms)
	r.end(m)
}

// From include/uapi/linux/neighbour.h.
const (
	ndtaName        = 1
	ndtaParms       = 6
	ndtpaIfindex    = 1
	ndtpaProxyDelay = 13
)

// Delete takes a device away, and with a veth its other end. It costs an RCU grace period (about 17 ms), for part of
// which the kernel holds the one lock over all network configuration.
type Delete struct{ Dev }

func (d Delete) String() string { return "delete " + d.Name }

func (d Delete) encode(r *request) {
	m := r.begin(unix.RTM_DELLINK, 0)
	r.link(0, d.Index, 0, 0)
	r.end(m)
}

// Addr puts an address on a device.
type Addr struct {
	Dev
	Prefix netip.Prefix
	// Spare addresses are never chosen as a source: for IPv6 the address is deprecated. IPv4 does the same by itself
	// with all but the first address of a subnet.
	Spare bool
}

func (a Addr) String() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Name) }

func (a Addr) encode(r *request) {
	addr := a.Prefix.Addr()
	m := r.begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	flags, scope := byte(0), byte(unix.RT_SCOPE_UNIVERSE)
	if addr.Is6() {
		flags = unix.IFA_F_NODAD
	}
	if addr.IsLinkLocalUnicast() {
		scope = unix.RT_SCOPE_LINK
	}
	r.b = append(r.b, byte(netns.Domain(addr)), byte(a.Prefix.Bits()), flags, scope) // struct ifaddrmsg
	r.b = host.AppendUint32(r.b, uint32(a.Index))
	r.addr(unix.IFA_LOCAL, addr)
	r.addr(unix.IFA_ADDRESS, addr)
	if a.Spare && addr.Is6() {
		const infinity = ^uint32(0)
		at := r.open(unix.IFA_CACHEINFO) // struct ifa_cacheinfo: preferred, valid, two time stamps
		r.b = host.AppendUint32(r.b, 0)
		r.b = host.AppendUint32(r.b, infinity)
		r.b = append(r.b, 0, 0, 0, 0, 0, 0, 0, 0)
		r.shut(at)
	}
	r.end(m)
}
