// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// VXLAN makes a device that wraps frames in UDP, and sets it up. It learns nothing: Forward entries say where to.
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
	m := r.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.link(0, v.Index, unix.IFF_UP, unix.IFF_UP)
	r.text(unix.IFLA_IFNAME, v.Name)
	r.bytes(unix.IFLA_ADDRESS, v.MAC[:])
	r.u32(unix.IFLA_MTU, uint32(v.MTU))
	info := r.open(unix.IFLA_LINKINFO)
	r.text(unix.IFLA_INFO_KIND, "vxlan")
	data := r.open(unix.IFLA_INFO_DATA)
	r.u32(unix.IFLA_VXLAN_ID, uint32(v.ID))
	r.u8(unix.IFLA_VXLAN_LEARNING, 0)
	r.u16be(unix.IFLA_VXLAN_PORT, v.Port)
	if v.Local.Is4() {
		r.addr(unix.IFLA_VXLAN_LOCAL, v.Local)
	} else {
		r.addr(unix.IFLA_VXLAN_LOCAL6, v.Local)
	}
	r.shut(data)
	r.shut(info)
	r.end(m)
}

// Tunnel4 makes an IPIP device without endpoints of its own: a route's next hop says where a packet is wrapped to.
// Use Ensure for it, because the kernel may have one already.
type Tunnel4 struct{ Dev }

func (t Tunnel4) String() string { return "ipip device " + t.Name }

// encode sends no parameters, so that the device is the same as the kernel's own fallback device tunl0.
func (t Tunnel4) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.link(0, t.Index, 0, 0)
	r.text(unix.IFLA_IFNAME, t.Name)
	info := r.open(unix.IFLA_LINKINFO)
	r.text(unix.IFLA_INFO_KIND, "ipip")
	r.shut(info)
	r.end(m)
}

// Tunnel6 makes an IPv6-in-IPv6 device without endpoints of its own: the Outer of a route says where a packet is
// wrapped to. IPv6 has no next hops over a tunnel as IPv4 has: it refuses one that another device leads to.
type Tunnel6 struct{ Dev }

func (t Tunnel6) String() string { return "ip6tnl device " + t.Name }

func (t Tunnel6) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.link(0, t.Index, 0, 0)
	r.text(unix.IFLA_IFNAME, t.Name)
	info := r.open(unix.IFLA_LINKINFO)
	r.text(unix.IFLA_INFO_KIND, "ip6tnl")
	data := r.open(unix.IFLA_INFO_DATA)
	r.bytes(iptunCollectMetadata, nil)
	r.shut(data)
	r.shut(info)
	r.end(m)
}

const iptunCollectMetadata = 19 // IFLA_IPTUN_COLLECT_METADATA, include/uapi/linux/if_tunnel.h

// Tune sets a device up with an MTU.
type Tune struct {
	Dev
	MTU int
}

func (t Tune) String() string { return fmt.Sprintf("%s up, mtu %d", t.Name, t.MTU) }

func (t Tune) encode(r *request) {
	m := r.begin(unix.RTM_NEWLINK, 0)
	r.link(0, t.Index, unix.IFF_UP, unix.IFF_UP)
	r.u32(unix.IFLA_MTU, uint32(t.MTU))
	r.end(m)
}

// Ensure makes the change unless a device of that name is there already, and returns the device. The tunnel modules of
// the kernel put a fallback device into every namespace (unless net.core.fb_tunnels_only_for_init_net forbids), some
// of them at the very moment that the first tunnel is asked for and the module is loaded.
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
