// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// narrowMTU is that of a narrow path, in bytes: the least that IPv6 allows.
const narrowMTU = 1280

// tooBig is how much payload makes a datagram too big for a narrow path, and not for any other of the lab.
const tooBig = 1350 // bytes

// LearnsOfNarrowPath makes the path from a pod's node to the pod narrow, and wants a client that is in some other place
// to learn of it: a TCP connection goes on with smaller segments, the sender of a datagram that was too big is told,
// and its next one comes in pieces. The targets must have addresses of their own: a client remembers what it has
// learned of one.
func LearnsOfNarrowPath(ctx context.Context, w spec.World, client string, tcp, udp spec.Target, pod string,
	families ...lab.Family) error {
	return narrowPath(w, pod, func() error {
		var first, second []spec.Row
		for _, f := range families {
			row := spec.Row{From: client, To: udp, Proto: "udp", Family: f, Conn: "big", Payload: tooBig, Want: spec.Unreachable}
			first = append(first, row, spec.Row{From: client, To: tcp, Family: f, Payload: 4 * tooBig, By: []string{pod}})
			if f == lab.V6 && w.Lab().Topology().PodNetwork == lab.Bridge {
				// The bridge shows fragments to conntrack, which joins them, and then forgets how long they were (br_pass_frame_up
				// hands the packet to ipv6_rcv, which clears frag_max_size): too big again, whatever the client does.
				continue
			}
			row.Want, row.By, row.Times = spec.Reply, []string{pod}, 2
			second = append(second, row)
		}
		if err := w.Expect(ctx, first...); err != nil {
			return err
		}
		return w.Expect(ctx, second...)
	})
}

// narrowPath lets through nothing longer than narrowMTU from a pod's node to the pod while f runs. Whoever sends a
// longer packet that must not be fragmented is told so by the node.
func narrowPath(w spec.World, pod string, f func() error) (err error) {
	p := w.Lab().Pod(w.Namespace() + "/" + pod)
	if p == nil {
		return spec.HarnessErrorf("there is no pod %s", pod)
	}
	for _, family := range w.Lab().Stack().Families() {
		undo, narrowErr := narrow(p, family)
		if narrowErr != nil {
			return spec.HarnessErrorf("narrow the path to %s: %w", pod, narrowErr)
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	return f()
}

// narrow gives the node's route to the pod an MTU. Where the node has only a route to all of its pods, it adds one.
func narrow(p *lab.Pod, family lab.Family) (undo func() error, err error) {
	h := p.Node().Netlink()
	to := hostNet(p.Addr(family))
	own, err := netns.List(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(familyNumber(family), &netlink.Route{Dst: to}, netlink.RT_FILTER_DST)
	})
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		narrowed := own[0]
		narrowed.MTU, narrowed.MTULock = narrowMTU, true
		return func() error { return h.RouteReplace(&own[0]) }, h.RouteReplace(&narrowed)
	}
	device, err := linkTo(&p.Node().Host, p.Addr(family))
	if err != nil {
		return nil, err
	}
	added := netlink.Route{Dst: to, LinkIndex: device, Scope: netlink.SCOPE_LINK, MTU: narrowMTU, MTULock: true}
	return func() error { return h.RouteDel(&added) }, h.RouteAdd(&added)
}

func familyNumber(f lab.Family) int {
	if f == lab.V6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}
