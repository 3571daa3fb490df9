// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// unallocated asks for an address of the Service range that no Service has.
func unallocated() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-unallocated-address", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{
			Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}},
			Check: func(ctx context.Context, w spec.World) error {
				free := unusedVIPs(w)
				to := spec.AddrAt(free[lab.V4], free[lab.V6], 80)
				caught, err := CaptureRows(ctx, w, []string{"router"}, spec.Row{From: "c1", To: to, Want: spec.NotServed},
					spec.Row{From: "n1", To: to, Want: spec.NotServed})
				spec.TryDo(err)
				if !w.Features()[spec.UnusedClusterIPsDropped] {
					w.Note("not looked at: whether it leaves the node, as unused-clusterips-dropped is not declared")
					return nil
				}
				for _, c := range caught {
					if a := c.Dst.Addr().String(); a == free[lab.V4] || a == free[lab.V6] {
						return fmt.Errorf("it left the node: the router saw %s", c.Packet)
					}
				}
				return nil
			},
		}},
	}
}

// unusedVIPs are an address of each family in the range of ClusterIPs that no Service has.
func unusedVIPs(w spec.World) map[lab.Family]string {
	used := map[string]bool{}
	for _, s := range w.Store().Snapshot().Services {
		for _, ip := range s.Spec.ClusterIPs {
			used[ip] = true
		}
	}
	free := map[lab.Family]string{}
	for _, p := range w.Store().ServiceCIDRs() {
		// The low end of the range is given out last.
		a := p.Addr().Next()
		for used[a.String()] {
			a = a.Next()
		}
		if !p.Contains(a) {
			panic(spec.HarnessErrorf("every ClusterIP is taken"))
		}
		free[lab.FamilyOf(a)] = a.String()
	}
	return free
}

func echo() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-icmp-echo", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			service := spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a2"}}
			spec.TryDo(w.Expect(ctx, service))
			pings := map[uint16]netip.Addr{}
			caught := spec.Try(CapturePackets(w, func() error {
				for _, f := range w.Lab().Stack().Families() {
					ping(w, f, pings)
				}
				// Once this is answered, every effect of the ping has happened: its packets take the same path,
				// earlier.
				return w.Expect(ctx, service)
			}, "c1", "a2"))
			return harmless(caught, pings)
		}}},
	}
}

// ping sends an echo request from c1 to the ClusterIP of a family, and notes it by its id.
func ping(w spec.World, f lab.Family, pings map[uint16]netip.Addr) {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), f, "tcp"))
	pings[spec.Must(traffic.Ping(spec.Must(w.Host("c1")).NS, vip.Addr()))] = vip.Addr()
}

// The types of echo messages (RFC 792, RFC 4443).
var (
	echoRequest = map[string]uint8{"icmp": 8, "icmpv6": 128}
	echoReply   = map[string]uint8{"icmp": 0, "icmpv6": 129}
)

// harmless wants every ping to have been sent, none to have come to the pod, and answers to come from the ClusterIP
// alone.
func harmless(caught []CapturedPacket, pings map[uint16]netip.Addr) error {
	sent := 0
	for _, c := range caught {
		vip, ours := pings[echoID(c)]
		if !ours {
			continue
		}
		switch {
		case c.ICMPType == echoRequest[c.Proto] && c.Host == "a2":
			return fmt.Errorf("the pod got the ping: %s", c.Packet)
		case c.ICMPType == echoRequest[c.Proto]:
			sent++
		case c.ICMPType == echoReply[c.Proto] && c.Src.Addr() != vip:
			return fmt.Errorf("the ping of %s is answered by another address: %s", vip, c.Packet)
		}
	}
	if sent < len(pings) {
		return spec.HarnessErrorf("the capture holds %d of %d pings", sent, len(pings))
	}
	return nil
}

// echoID is the id of an echo without a payload, 0 if the packet is none.
func echoID(c CapturedPacket) uint16 {
	const header = 8 // type, code, checksum, id, sequence number
	if _, icmp := echoRequest[c.Proto]; !icmp || len(c.Raw) < header {
		return 0
	}
	return binary.BigEndian.Uint16(c.Raw[len(c.Raw)-header+4:])
}
