// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// spoofedPodSource records whether a proxier tells pods by their addresses. Then rp_filter or a firewall on the LAN is
// what keeps others from passing for one.
func spoofedPodSource() spec.Scenario {
	return spec.Scenario{
		ID:    "sec-spoofed-pod-source",
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.KernelNAT},
		Given: []store.Object{Backend("a1", "n1"), Pod("c3", "n3"), Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{{
			Rows:  []spec.Row{{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence}},
			Check: EachFamily(spoof),
		}},
	}
}

// spoof sends SYNs from the host client to the NodePort of n3, in its own name and in that of a pod of n3, and looks
// which of them come to the pod behind the Service.
func spoof(ctx context.Context, w spec.World, family lab.Family) error {
	client := spec.Must(w.Host("client"))
	pod := spec.Must(w.Host("c3"))
	to := spec.Must(w.Resolve(spec.NodePortAt("n3", "web", 80), family, "tcp"))
	const port = 40100
	own, forged := netip.AddrPortFrom(client.Addr(family), port), netip.AddrPortFrom(pod.Addr(family), port)
	seen := spec.Try(CapturePackets(w, func() error {
		for _, src := range []netip.AddrPort{own, forged} {
			syn := spec.Must(traffic.Segment{Src: src, Dst: to, Seq: 1, SYN: true, Window: 1000}.Packet())
			spec.MustDo(traffic.SendRaw(client.NS, syn))
		}
		return w.Expect(ctx, spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}})
	}, "a1"))
	passed := map[netip.AddrPort]bool{}
	for _, c := range seen {
		if c.Direction == observe.In && c.Flags == "SYN" {
			passed[c.Src] = true
		}
	}
	if passed[own] {
		return fmt.Errorf("%s: a SYN from outside came to a1, through a node without an endpoint", family)
	}
	w.Note(fmt.Sprintf("whoever sends from the address of a pod over IP%s counts as one: %t", family, passed[forged]))
	return nil
}

// mark is the bit of the packet mark by which kube-proxy knows what to masquerade: --iptables-masquerade-bit 14.
const mark = 1 << 14

func markCollision() spec.Scenario {
	return spec.Scenario{
		ID: "sec-mark-collision", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{
			{Name: "the pod marks its packets", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, SeenAs: spec.ClientAddr()},
			}, Check: EachFamily(markedInPod)},
			{Name: "the node marks the pod's packets", Check: func(ctx context.Context, w spec.World) error {
				unmark := markOnNode(ctx, w, "c1", mark)
				seenAs := spec.ClientAddr()
				if w.Features()[spec.MasqueradeMark] {
					seenAs = spec.NodeAddr("n1")
				}
				defer unmark()
				return w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, SeenAs: seenAs})
			}},
		},
	}
}

// markedInPod connects with SO_MARK set.
func markedInPod(ctx context.Context, w spec.World, family lab.Family) error {
	c1 := spec.Must(w.Host("c1"))
	to := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	ctx, cancel := WithPatience(ctx)
	defer cancel()
	answer := traffic.Probe{From: c1.NS, To: to, Proto: "tcp", Mark: mark}.Do(ctx)
	spec.MustDo(answer.Fault)
	if answer.Outcome != traffic.Reply || answer.Peer != answer.Source {
		return fmt.Errorf("%s: a connection of c1 with mark %#x: %s, want a reply by one that sees %s", family, mark, answer,
			answer.Source)
	}
	return nil
}

// markOnNode makes n1 mark all packets of a host as they come in, before any proxier sees them.
func markOnNode(ctx context.Context, w spec.World, host string, mark uint32) (unmark func()) {
	h := spec.Must(w.Host(host))
	const table = "inet viplab-marks"
	var script strings.Builder
	fmt.Fprintf(&script, "add table %s; add chain %[1]s early { type filter hook prerouting priority -150; }\n", table)
	for _, a := range h.Addrs() {
		family := "ip"
		if a.Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&script, "add rule %s early %s saddr %s meta mark set meta mark | %#x\n", table, family, a, mark)
	}
	spec.Must(w.Run(ctx, "n1", "nft", script.String()))
	return func() { spec.Must(w.Run(ctx, "n1", "nft", "delete table "+table)) }
}
