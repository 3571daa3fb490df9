// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// sources are the scenarios of packets that are not what they say, and of packets as no socket sends them.
func sources() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-spoofed-pod", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: eachSpoofed("b2", "b1", "c2")}},
		},
		{
			ID: "np-spoofed-node", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: eachSpoofed("n1", "b1", "c2")}},
		},
		{
			ID: "np-segment-of-no-connection", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
				return arriveNot(ctx, w, f, func(port uint16) {
					for _, from := range []string{"b1", "c2"} {
						h := spec.Must(w.Host(from))
						for _, s := range []traffic.Segment{{ACK: true, PSH: true, Payload: []byte("x")}, {FIN: true, ACK: true},
							{SYN: true, ACK: true}, {RST: true}} {
							s.Src, s.Seq, s.Ack, s.Window = netip.AddrPortFrom(h.Addr(f), port), 1000, 2000, 1000
							s.Dst = spec.Must(w.Resolve(spec.HostAt("a1", 8080), f, "tcp"))
							spec.MustDo(traffic.SendRaw(h.NS, spec.Must(s.Packet())))
						}
					}
				})
			})}},
		},
		{
			ID: "np-marks-of-pods", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress()), policy("q", pod("c2"), egress())),
			Steps: []spec.Step{{Check: EachFamily(marked)}},
		},
	}
}

// spoofPort and the ports after it are those that made-up packets come from.
const spoofPort = 31900

// eachSpoofed sends a datagram and a SYN to a1 from pods under another host's address, and wants none of them to
// arrive.
func eachSpoofed(name string, pods ...string) Check {
	return EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
		as := spec.Must(w.Host(name))
		return arriveNot(ctx, w, f, func(port uint16) {
			src := netip.AddrPortFrom(as.Addr(f), port)
			dst := spec.Must(w.Resolve(spec.HostAt("a1", 8080), f, "udp"))
			datagram := spec.Must(traffic.Datagram{Src: src, Dst: dst, Payload: []byte("spoofed\n")}.Packet())
			segment := spec.Must(traffic.Segment{Src: src, Dst: dst, SYN: true, Seq: 1000, Window: 1000}.Packet())
			for _, from := range pods {
				h := spec.Must(w.Host(from))
				spec.MustDo(errors.Join(traffic.SendRaw(h.NS, datagram), traffic.SendRaw(h.NS, segment)))
			}
		})
	})
}

// arriveNot looks at what comes to a1 while packets are sent from a port, and until b2, who is allowed, has been
// answered, and b1 and c2 have not.
func arriveNot(ctx context.Context, w spec.World, f lab.Family, send func(port uint16)) error {
	spec.TryDo(w.Settle(ctx))
	rows := append(open("a1", "b2"), shut("a1", "b1", "c2")...)
	caught := spec.Try(CapturePackets(w, func() error {
		send(spoofPort)
		return w.Expect(ctx, rows...)
	}, "a1"))
	for _, c := range caught {
		if p := c.Packet; p.Src.Port() == spoofPort && lab.FamilyOf(p.Src.Addr()) == f {
			return fmt.Errorf("a1 has received %s", p)
		}
	}
	return nil
}

// marked sends from b1 to a1, and from c2 to b1, with each bit of the mark set, and with all of them.
func marked(ctx context.Context, w spec.World, f lab.Family) error {
	spec.TryDo(w.Settle(ctx))
	for _, way := range [][2]string{{"b1", "a1"}, {"b2", "a1"}, {"c2", "b1"}} {
		p := PodOf(w, way[0])
		to := spec.Must(w.Resolve(spec.HostAt(way[1], 8080), f, "udp"))
		for bit := range 33 {
			mark := uint32(1) << bit
			if bit == 32 {
				mark = math.MaxUint32
			}
			probe := traffic.Probe{
				From: p.NS, FencesFrom: p.Node().NS, To: to, Proto: "udp", Mark: mark,
				Fences: []netip.Addr{w.Lab().Node("n1").Addr(f), w.Lab().Node("n2").Addr(f)},
			}
			a := probe.Do(ctx)
			spec.MustDo(a.Fault)
			if a.Outcome == traffic.Reply {
				return fmt.Errorf("%s is answered by %s with mark %#x", way[0], way[1], probe.Mark)
			}
		}
	}
	return nil
}

// tunnels are the scenarios of pods that make tunnels, as nodes do.
func tunnels() []spec.Scenario {
	return []spec.Scenario{{
		ID: "np-tunnels-of-pods", Families: []lab.Family{lab.V4}, NeedsOverlay: true, Needs: enforced,
		Given: four(policy("p", pod("a1"), egress())),
		Steps: []spec.Step{{Rows: shut("b2", "a1"), Check: func(ctx context.Context, w spec.World) error {
			b2 := OpenSocket(ctx, w, "b2", lab.V4)
			defer b2.Close()
			wrapUp(w, b2.Addr())
			if err := w.Expect(ctx, open("b2", "b1")...); err != nil { // a fence
				return err
			}
			heard, err := b2.Pending()
			if len(heard) > 0 {
				err = errors.Join(err, fmt.Errorf("b2 has got %q from a tunnel of a1", heard))
			}
			return errors.Join(err, answered(ctx, w))
		}}},
	}}
}

// answered asks b1 from the port of VXLAN (RFC 7348) of a node. A node that masquerades a client may choose that port.
func answered(ctx context.Context, w spec.World) error {
	n1 := w.Lab().Node("n1")
	probe := traffic.Probe{
		From: n1.NS, Source: netip.AddrPortFrom(n1.Addr(lab.V4), 4789), Proto: "udp",
		To:     spec.Must(w.Resolve(spec.HostAt("b1", 8080), lab.V4, "udp")),
		Fences: []netip.Addr{w.Lab().Node("n1").Addr(lab.V4), w.Lab().Node("n2").Addr(lab.V4)},
	}
	a := probe.Do(ctx)
	spec.MustDo(a.Fault)
	if a.Outcome != traffic.Reply {
		return fmt.Errorf("b1 is asked from port 4789 of n1: want an answer, got %s", a.Outcome)
	}
	return nil
}

// wrapUp sends a datagram for a socket of n2 from a1, in VXLAN and in IP in IP.
func wrapUp(w spec.World, to netip.AddrPort) {
	a1 := spec.Must(w.Host("a1"))
	n2, from := w.Lab().Node("n2"), netip.AddrPortFrom(a1.Addr(lab.V4), 31902)
	inner := spec.Must(traffic.Datagram{Src: from, Dst: to, Payload: []byte("tunnelled")}.Packet())
	spec.MustDo(traffic.SendRaw(a1.NS, spec.Must(traffic.IPIP(from.Addr(), n2.Addr(lab.V4), inner))))
	links := spec.Must(netns.List(n2.Netlink().LinkList))
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Type() == "vxlan" })
	if at < 0 {
		return
	}
	device := links[at].(*netlink.Vxlan)
	outer := spec.Must(traffic.Datagram{
		Src: from, Dst: netip.AddrPortFrom(n2.Addr(lab.V4), uint16(device.Port)),
		Payload: traffic.VXLAN(uint32(device.VxlanId), device.HardwareAddr, inner),
	}.Packet())
	spec.MustDo(traffic.SendRaw(a1.NS, outer))
}
