// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// segments returns the scenarios of TCP connections and segments that come at an odd time or by an odd way.
func segments() []spec.Scenario {
	return []spec.Scenario{portReused(), outlivesTermination(), asymmetric()}
}

// The clients' ports of portReused, above those that probes choose.
const fromPod, fromOutside = 61301, 61302

func portReused() spec.Scenario {
	rows := func(servers ...string) []spec.Row {
		return []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("web", 80), SourcePort: fromPod, Servers: servers},
			{From: "client", To: spec.NodePortAt("n1", "web", 80), SourcePort: fromOutside, Servers: servers},
		}
	}
	return spec.Scenario{
		ID: "ct-tcp-port-reused", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{
			{Name: "a1", Do: []spec.Action{Readiness("a2", false)}, Rows: rows("a1")},
			{Name: "a2 takes its place", Check: sentOnce(During(rows("a1", "a2"),
				func(ctx context.Context, w spec.World, t spec.Traffic) {
					spec.TryDo(t.Rounds(ctx, 20))
					RunActions(ctx, w, Readiness("a1", false), Readiness("a2", true))
					spec.TryDo(w.Settle(ctx))
				}))},
			{Name: "a2", Check: sentOnce(During(rows("a2"), func(ctx context.Context, _ spec.World, t spec.Traffic) {
				spec.TryDo(t.Rounds(ctx, 80))
			}))},
		},
	}
}

// sentOnce returns a check that also requires that no client had to send a SYN twice, which takes a second (RFC 6298).
func sentOnce(check Check) Check {
	return func(ctx context.Context, w spec.World) error {
		seen := spec.Try(CapturePackets(w, func() error { return check(ctx, w) }, "c1", "client"))
		type syn struct {
			from netip.AddrPort
			seq  uint32
		}
		syns := map[syn]int{}
		for _, c := range seen {
			if c.Direction == observe.Out && c.Flags == "SYN" && (c.Src.Port() == fromPod || c.Src.Port() == fromOutside) {
				syns[syn{c.Src, c.Seq}]++
			}
		}
		if len(syns) == 0 {
			return spec.HarnessErrorf("the capture shows no connection")
		}
		for s, n := range syns {
			if n > 1 {
				return fmt.Errorf("of %d connections, one from %s sent its SYN %d times", len(syns), s.from, n)
			}
		}
		return nil
	}
}

// outlivesTermination has slices written by hand: the pods run to the end.
func outlivesTermination() spec.Scenario {
	return spec.Scenario{
		ID: "ct-tcp-outlives-termination", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", Selecting(""), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "a1 alone", Do: []spec.Action{slice(SliceEndpoint{Host: "a1", State: Running})}, Rows: openConnections()},
			{Name: "a1 terminates", Do: []spec.Action{
				slice(SliceEndpoint{Host: "a1", State: Ending}, SliceEndpoint{Host: "a2", State: Running}),
			}, Rows: append(openConnections(), newOnes("a2")...)},
			{Name: "a1 terminates and does not serve", Do: []spec.Action{
				slice(SliceEndpoint{Host: "a1", State: Dying}, SliceEndpoint{Host: "a2", State: Running}),
			}, Rows: append(openConnections(), newOnes("a2")...)},
			{Name: "a1 has left", Do: []spec.Action{slice(SliceEndpoint{Host: "a2", State: Running})},
				Rows: append(leftOpen(), newOnes("a2")...)},
		},
	}
}

func slice(endpoints ...SliceEndpoint) spec.Action {
	return Slice("web", "web", "", 8080, endpoints...)
}

// newOnes are new connections.
func newOnes(server string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{server}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, Servers: []string{server}},
	}
}

// asymmetric routes what the client sends to an address of the router by way of n1. The router answers the client
// directly, so n1 sees one half of the connection.
func asymmetric() spec.Scenario {
	const v4, v6, at = "198.51.100.101", "2001:db8:51::101", 30006
	return spec.Scenario{
		ID: "ct-one-way-traffic", NodePorts: []uint16{at}, Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{{
			Do: []spec.Action{
				AddAddress("router", v4, v6), RouteVia("client", v4, v6, "n1"),
				Serve("router", "tcp", at), Serve("router", "udp", at),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.AddrAt(v4, v6, at), Times: 3, Servers: []string{"router"}},
				{From: "client", To: spec.AddrAt(v4, v6, at), Conn: "long", Times: 3, Servers: []string{"router"}},
				{From: "client", To: spec.AddrAt(v4, v6, at), Proto: "udp", Times: 3, Servers: []string{"router"}},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
			},
		}},
	}
}
