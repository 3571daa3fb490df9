// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab/netns"
)

// Space is a namespace of the network. Kind and Node are those of a Place.
type Space struct {
	NS         *netns.NS
	Kind, Node string
}

// Places describes namespaces with their devices, and finds which devices are the ends of one veth. It leaves out pods
// that have gone.
func Places(spaces []Space) ([]Place, error) {
	spaces = slices.DeleteFunc(slices.Clone(spaces), func(s Space) bool {
		_, err := netns.List(s.NS.Netlink().LinkList)
		return s.Kind == "pod" && err != nil
	})
	places := make([]Place, 0, len(spaces))
	links := make([][]netlink.Link, len(spaces))
	for i, s := range spaces {
		var err error
		if links[i], err = netns.List(s.NS.Netlink().LinkList); err != nil {
			return nil, fmt.Errorf("%s: list devices: %w", s.NS.Name(), err)
		}
		p := Place{Name: s.NS.Name(), Kind: s.Kind, Node: s.Node}
		names := map[int]string{}
		for _, l := range links[i] {
			names[l.Attrs().Index] = l.Attrs().Name
		}
		for _, l := range links[i] {
			d := Device{Name: l.Attrs().Name, Kind: l.Type(), MTU: l.Attrs().MTU, Bridge: names[l.Attrs().MasterIndex]}
			if d.Kind == "device" && d.Name == "lo" {
				d.Kind = "loopback"
			}
			if d.Addresses, err = addresses(s.NS, l); err != nil {
				return nil, err
			}
			p.Devices = append(p.Devices, d)
		}
		places = append(places, p)
	}
	for i := range spaces {
		for n, l := range links[i] {
			if l.Type() == "veth" {
				places[i].Devices[n].Peer = peer(spaces, links, spaces[i].NS, l)
			}
		}
	}
	return places, nil
}

func addresses(ns *netns.NS, l netlink.Link) (all []netip.Prefix, err error) {
	list, err := netns.List(func() ([]netlink.Addr, error) { return ns.Netlink().AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("%s: list addresses of %s: %w", ns.Name(), l.Attrs().Name, err)
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && !a.IP.IsLinkLocalUnicast() {
			ones, _ := a.Mask.Size()
			all = append(all, netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	return all, nil
}

// peer returns the other end of a veth, nil if it is in none of the spaces. The kernel gives its index, and a number of
// its namespace that means something in the namespace of this end only.
func peer(spaces []Space, links [][]netlink.Link, ns *netns.NS, veth netlink.Link) *DeviceName {
	for i, s := range spaces {
		id, err := ns.Netlink().GetNetNsIdByFd(s.NS.Fd())
		if s.NS != ns && (err != nil || id < 0 || id != veth.Attrs().NetNsID) || s.NS == ns && veth.Attrs().NetNsID >= 0 {
			continue
		}
		for _, l := range links[i] {
			if l.Attrs().Index == veth.Attrs().ParentIndex && l.Type() == "veth" {
				return &DeviceName{Place: s.NS.Name(), Device: l.Attrs().Name}
			}
		}
	}
	return nil
}
