// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// spared is how many flows are watched where a cut one would find back to its pod with a chance of 1/2: that all of
// them do has one below 1e-6.
const spared = 20

func udpUntouchedFlows() spec.Scenario {
	return spec.Scenario{
		ID: "ct-udp-untouched-flows",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal, spec.ConntrackCleanupUDP,
			spec.KernelNAT},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a2", "n2"), dns(NodePort())},
		Steps: []spec.Step{
			{Name: "a2 alone", Rows: sparedFlows(spec.Row{})},
			{Name: "b1 joins", Do: []spec.Action{Apply(dnsPod("b1", "n1"))}, Rows: append(sparedFlows(spec.Row{}),
				spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", By: []string{"a2", "b1"}, Even: true},
			)},
			{Name: "new flows stay on the node", Do: []spec.Action{Edit("dns", ETPLocal()), Edit("dns", ITPLocal())},
				Rows: append(sparedFlows(spec.Row{If: spec.UDPDrains}),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Times: 3, By: []string{"b1"}},
				)},
			{Name: "a2 terminates and serves", Do: []spec.Action{Terminate("a2", true)},
				Rows: append(sparedFlows(spec.Row{If: spec.UDPDrains}),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Times: 3, By: []string{"b1"}},
				)},
		},
	}
}

// sparedFlows are flows to a2.
func sparedFlows(r spec.Row) []spec.Row {
	r.By = []string{"a2"}
	var rows []spec.Row
	for i := range spared / 2 {
		rows = append(rows, flow("c1", spec.ClusterIPOf("dns", 53), r), flow("client", spec.NodePortAt("n1", "dns", 53), r))
		for j := range 2 {
			rows[2*i+j].Conn += fmt.Sprintf(" #%d", i)
		}
	}
	return rows
}

// cleanupCollateral has a pod talk to a server outside whose port is the NodePort of a Service.
func cleanupCollateral() spec.Scenario {
	return spec.Scenario{
		ID: "ct-cleanup-collateral", NodePorts: []uint16{30047},
		Needs: []spec.Feature{spec.NodePort, spec.ConntrackCleanupUDP, spec.ConntrackSparesOthers},
		Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("b1", "n1"), dns(NodePort(), nodePort(30047))},
		Steps: []spec.Step{
			{Name: "a flow to the NodePort, one to the same port elsewhere",
				Do: []spec.Action{Readiness("b1", false), Serve("client", "udp", 30047)}, Rows: []spec.Row{
					flow("client", spec.HostAt("n1", 30047), spec.Row{By: []string{"a1"}}),
					flow("c1", spec.HostAt("client", 30047), spec.Row{By: []string{"client"}}),
				}},
			{Name: "the Service's endpoint changes", Do: []spec.Action{Readiness("a1", false), Readiness("b1", true)},
				Check: flowsElsewhereAreTracked},
			{Name: "the flow to the NodePort has moved", Rows: []spec.Row{
				flow("client", spec.HostAt("n1", 30047), spec.Row{By: []string{"b1"}, Moves: true}),
			}},
		},
	}
}

// flowsElsewhereAreTracked looks at the entry before another packet would make a new one.
func flowsElsewhereAreTracked(ctx context.Context, w spec.World) error {
	servers, err := ResolveAll(w, spec.HostAt("client", 30047), "udp")
	if err != nil {
		return err
	}
	flows := map[netip.AddrPort]int{}
	_, err = w.Flows(ctx, "n1", func(f observe.Flow) bool {
		if f.Proto == "udp" {
			flows[f.Orig.Dst]++
		}
		return false
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range servers {
		if flows[s] != 1 {
			errs = append(errs, fmt.Errorf("n1 holds %d conntrack entries of the flow to %s, which is none of its Services, "+
				"not 1", flows[s], s))
		}
	}
	return errors.Join(errs...)
}

func tcpNotFlushed() spec.Scenario {
	return spec.Scenario{
		ID:    "ct-tcp-sctp-not-flushed",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort()),
		},
		Steps: []spec.Step{
			{Name: "a1 alone", Do: []spec.Action{Readiness("a2", false)}, Rows: openConnections()},
			{Name: "a2 in its place", Do: []spec.Action{Readiness("a1", false), Readiness("a2", true)},
				Rows: append(openConnections(),
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, By: []string{"a2"}},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, By: []string{"a2"}},
				)},
			{Name: "none", Do: []spec.Action{Readiness("a2", false)}, Rows: append(openConnections(),
				Unserved(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)})...,
			)},
		},
	}
}

// openConnections are TCP connections to a1 that stay open.
func openConnections() []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "from a pod", By: []string{"a1"}},
		{From: "n1", To: spec.ClusterIPOf("web", 80), Conn: "from a node", By: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "from outside", By: []string{"a1"}},
	}
}

func nothingOnRejectDrop() spec.Scenario {
	return spec.Scenario{
		ID:    "ct-nothing-on-reject-drop",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ETPLocal()),
			Service("empty", Port(80, 8080), UDPPort(80, 8080), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "an accepted connection leaves an entry", Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2"}, Flow: spec.TranslatedOn("n2")},
			}},
			{Name: "no other does", Rows: turnedAway, Check: nothingIsTracked},
		},
	}
}

// turnedAway are connections through n1 that it refuses, and one that it drops.
var turnedAway = []spec.Row{
	{From: "c1", To: spec.ClusterIPOf("empty", 80), Want: spec.Refused},
	{From: "c1", To: spec.ClusterIPOf("empty", 80), Proto: "udp", Want: spec.Refused},
	{From: "n1", To: spec.ClusterIPOf("empty", 80), Want: spec.Refused},
	{From: "client", To: spec.NodePortAt("n1", "empty", 80), Want: spec.Refused},
	{From: "client", To: spec.NodePortAt("n1", "empty", 80), Proto: "udp", Want: spec.Refused},
	{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
}

func nothingIsTracked(ctx context.Context, w spec.World) error {
	type flow struct {
		proto string
		to    netip.AddrPort
	}
	unwanted := map[flow]spec.Row{}
	for _, r := range turnedAway {
		for _, family := range w.Lab().Stack().Families() {
			to, err := w.Resolve(r.To, family, r.Protocol())
			if err != nil {
				return err
			}
			unwanted[flow{r.Protocol(), to}] = r
		}
	}
	var errs []error
	_, err := w.Flows(ctx, "n1", func(f observe.Flow) bool { // once for all: the table is long
		r, ours := unwanted[flow{f.Proto, f.Orig.Dst}]
		if ours {
			errs = append(errs, fmt.Errorf("%s to %s was turned away, but n1 tracks it: %s", r.From, r.To, f))
		}
		return ours
	})
	return errors.Join(append(errs, err)...)
}
