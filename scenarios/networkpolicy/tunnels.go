// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// tunnels are the scenarios of pods that make tunnels, as nodes do.
func tunnels() []spec.Scenario {
	return []spec.Scenario{{
		ID:       "np-tunnels-of-pods",
		Families: []lab.Family{lab.V4}, NeedsOverlay: true,
		Needs: enforced,
		Given: four(policy("p", pod("a1"), egress())),
		Steps: []spec.Step{{Rows: shut("b2", "a1"), Check: func(ctx context.Context, w spec.World) error {
			b2, err := OpenSocket(ctx, w, "b2", lab.V4)
			if err != nil {
				return err
			}
			defer b2.Close()
			if err := wrapUp(w, b2.Addr()); err != nil {
				return &spec.HarnessError{Err: err}
			}
			if err := w.Expect(ctx, open("b2", "b1")...); err != nil { // a fence
				return err
			}
			heard, err := b2.Heard()
			if len(heard) > 0 {
				err = errors.Join(err, fmt.Errorf("b2 has got %q from a tunnel of a1", heard))
			}
			return err
		}}},
	}}
}

// wrapUp sends a datagram for a socket of n2 from a1, in VXLAN and in IP in IP.
func wrapUp(w spec.World, to netip.AddrPort) error {
	a1, err := w.Host("a1")
	if err != nil {
		return err
	}
	n2, from := w.Lab().Node("n2"), netip.AddrPortFrom(a1.Addr(lab.V4), 31902)
	inner, err := traffic.Datagram{Src: from, Dst: to, Payload: []byte("tunnelled")}.Packet()
	if err != nil {
		return err
	}
	packet, err := traffic.IPIP(from.Addr(), n2.Addr(lab.V4), inner)
	if err != nil {
		return err
	}
	err = traffic.SendRaw(a1.NS, packet)
	links, listErr := netns.List(n2.Netlink().LinkList)
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Type() == "vxlan" })
	if at < 0 || err != nil || listErr != nil {
		return errors.Join(err, listErr)
	}
	device := links[at].(*netlink.Vxlan)
	outer, err := traffic.Datagram{
		Src: from, Dst: netip.AddrPortFrom(n2.Addr(lab.V4), uint16(device.Port)),
		Payload: traffic.VXLAN(uint32(device.VxlanId), device.HardwareAddr, inner),
	}.Packet()
	return errors.Join(err, traffic.SendRaw(a1.NS, outer))
}
