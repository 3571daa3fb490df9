// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// egress returns the scenarios of the pod network itself and of masquerading: what must hold beside the proxier.
func egress() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "base-pod-and-node-no-nat", HoldsWithoutProxier: true,
			Given: []store.Object{
				Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"),
				Pod("h1", "n1", HostNetwork(), TCP(18090)), Pod("h2", "n2", HostNetwork(), TCP(18090)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.HostAt("b1", 8080), Servers: []string{"b1"}, SeenAs: spec.ClientAddr()},
				{From: "a1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}, SeenAs: spec.ClientAddr()},
				{From: "n1", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
				{From: "n1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}, SeenAs: spec.ClientAddr()},
				{From: "a1", To: spec.HostAt("n1", 18090), Servers: []string{"h1"}, SeenAs: spec.ClientAddr()},
				{From: "a1", To: spec.HostAt("n2", 18090), Servers: []string{"h2"}, SeenAs: spec.ClientAddr()},
			}}},
		},
		{
			ID: "base-pod-egress-snat", HoldsWithoutProxier: true,
			Given: []store.Object{Pod("a1", "n1")},
			Steps: []spec.Step{{
				Do: []spec.Action{Serve("client", "tcp", 18091)},
				Rows: []spec.Row{{From: "a1", To: spec.HostAt("client", 18091), Servers: []string{"client"},
					SeenAs: spec.NodeAddr("n1")}},
			}},
		},
		{
			ID: "base-external-to-pod-ip", HoldsWithoutProxier: true,
			Given: []store.Object{Backend("a1", "n1")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.HostAt("a1", 8080), Want: spec.NotServed},
			}}},
		},
		{
			ID: "base-ip-forward", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{
				{Name: "n1 does not forward", Do: []spec.Action{forwarding("0")}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
				}},
				{Name: "n1 forwards", Do: []spec.Action{forwarding("1")}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				}},
			},
		},
	}
}

// masquerading returns the scenarios of what nodes do to the sources of packets.
func masquerading() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "masq-source-is-egress-interface", Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
			Given: []store.Object{
				Backend("a1", "n1"), Backend("a2", "n2", App("far")), Service("web", NodePort()),
				Service("far", NodePort()),
			},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				caught := spec.Try(CaptureRows(ctx, w, []string{"n2"},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"},
						SeenAs: spec.EgressOf("n1")},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "far", 80), Servers: []string{"a2"},
						SeenAs: spec.EgressOf("n1")}))
				return EachFamily(func(_ context.Context, w spec.World, family lab.Family) error {
					return arrivesFrom(w, caught, family)
				})(ctx, w)
			}}},
		},
		// It has a cluster of its own, because it counts marked packets and turns checksum offload off.
		{
			ID: "masq-mark-cleared", NeedsOverlay: true, Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.NodePort, spec.KernelNAT, spec.MasqueradeMark},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				spec.MustDo(observe.DisableOffloads(w.Lab().Client().NS, "eth0"))
				count := Count(ctx, w, "n1", markedPackets...)
				caught := spec.Try(CaptureRows(ctx, w, []string{"n2"},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"},
						SeenAs: spec.NodeAddr("n1")}))
				spec.TryDo(marksAreGone(count()))
				for _, family := range w.Lab().Stack().Families() {
					spec.TryDo(outerIsIntact(w, caught, spec.Must(w.Resolve(spec.HostAt("a2", 8080), family, "tcp"))))
				}
				return nil
			}}},
		},
		// It lets two machines use the same source ports. In the burst a datagram is not sent again: one
		// that is lost, because its node gave it a port that another flow got at the same time, is seen.
		{
			ID: "masq-port-collisions", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{
				Backend("a2", "n2", UDP(8080)), Service("web", Port(80, 8080), UDPPort(80, 8080), NodePort()),
			},
			Steps: []spec.Step{
				{Name: "two clients with one port", Rows: sameSourcePort()},
				{Name: "both go on", Rows: sameSourcePort()},
				{Name: "many at once", Rows: manyAtOnce()},
			},
		},
	}
}

func forwarding(value string) spec.Action {
	return Sysctls("n1",
		netns.Setting{Key: "net.ipv4.ip_forward", Value: value},
		netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: value})
}

// Source ports beyond those that clients take by themselves.
const (
	sharedPort = 61401
	firstBurst = 61410
)

// burst is how many pairs of clients begin at the same moment.
const burst = 24

func sameSourcePort() []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		for _, client := range []string{"client", "router"} {
			rows = append(rows, spec.Row{
				From: client, To: spec.NodePortAt("n1", "web", 80), Proto: proto, SourcePort: sharedPort, Conn: client + "/" +
					proto,
				Servers: []string{"a2"}, SeenAs: spec.ClientAddrOrNode(),
			})
		}
	}
	return rows
}

func manyAtOnce() []spec.Row {
	var rows []spec.Row
	for i := range uint16(burst) {
		for _, client := range []string{"client", "router"} {
			rows = append(rows, spec.Row{
				From: client, To: spec.NodePortAt("n1", "web", 80), Proto: "udp", SourcePort: firstBurst + i,
				Servers: []string{"a2"}, SeenAs: spec.ClientAddrOrNode(),
			})
		}
	}
	return rows
}

// arrivesFrom wants the first packet to a2 to have come to n2's network card from n1's, whatever carried it.
func arrivesFrom(w spec.World, caught []CapturedPacket, family lab.Family) error {
	pod := spec.Must(w.Resolve(spec.HostAt("a2", 8080), family, "tcp"))
	source := w.Lab().Node("n1").EgressAddr(pod.Addr())
	for _, c := range caught {
		p := c.Innermost()
		if c.Direction != observe.In || c.Device != "eth0" || p.Dst != pod || p.Flags != "SYN" {
			continue
		}
		if p.Src.Addr() != source {
			return fmt.Errorf("the packet to %s leaves n1 with the source %s, not that of its interface, %s", pod, p.Src, source)
		}
		if c.Inner != nil && w.Lab().Node("n1").Addr(lab.FamilyOf(c.Src.Addr())) != c.Src.Addr() {
			return fmt.Errorf("the packet to %s reaches n2 in a tunnel from %s, which is not n1", pod, c.Src)
		}
		return nil
	}
	return fmt.Errorf("no packet to %s reaches n2", pod)
}

// markedPackets count what carries the mark before and after the nat table's postrouting hook (priority srcnat, 100).
var markedPackets = []Counter{
	{Name: "before", Hook: "postrouting", Priority: 99, Match: "meta mark and 0x4000 == 0x4000"},
	{Name: "after", Hook: "postrouting", Priority: 101, Match: "meta mark and 0x4000 == 0x4000"},
}

func marksAreGone(counted map[string]int) error {
	switch {
	case counted["before"] == 0:
		return errors.New("no packet that was masqueraded had been marked with 0x4000")
	case counted["after"] > 0:
		return fmt.Errorf("%d packets still carry the mark 0x4000 after masquerading", counted["after"])
	}
	return nil
}

func outerIsIntact(w spec.World, caught []CapturedPacket, pod netip.AddrPort) error {
	n1 := w.Lab().Node("n1")
	carried := 0
	for _, c := range caught {
		if c.Direction != observe.In || c.Device != "eth0" || c.Inner == nil || c.Innermost().Dst != pod {
			continue
		}
		carried++
		if outer := c.Src.Addr(); n1.Addr(lab.FamilyOf(outer)) != outer {
			return fmt.Errorf("the outer packet comes from %s, not from n1's address", outer)
		}
		spec.TryDo(c.Innermost().VerifyChecksums())
	}
	if carried == 0 {
		return fmt.Errorf("no tunnel packet with a packet to %s reached n2", pod)
	}
	return nil
}
