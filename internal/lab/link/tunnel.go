// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

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
