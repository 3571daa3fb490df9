// SPDX-License-Identifier: Apache-2.0

package services

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

// scale returns the scenarios of many Services, many endpoints and many changes. They are small enough to run all the
// time: most faults that show with five thousand Services show with a few hundred. They judge what is served, not how
// fast.
func scale() []spec.Scenario {
	return []spec.Scenario{manyServices(), manyEndpoints(), endpointStorm(), churn(), firstPacketLatency()}
}

// crowd is n Services over the same pods, called s0, s1, ...
func scaleCrowd(n int) []store.Object {
	var all []store.Object
	for i := range n {
		all = append(all, Service(fmt.Sprintf("s%d", i), Selecting("web")))
	}
	return all
}

// applyAll is Apply of many objects, with a short name.
func applyAll(objects []store.Object) spec.Action {
	return spec.Action{Name: fmt.Sprintf("apply %d objects", len(objects)), Run: Apply(objects...).Run}
}

// both are the pods behind all Services.
var scaleBoth = []string{"a1", "a2"}

// services is how many there are where many are wanted.
const services = 150

// sample are connections to the first, the last and some Services between.
func sample(n int) []spec.Row {
	var rows []spec.Row
	for _, i := range []int{0, 1, n / 3, n / 2, n - 2, n - 1} {
		rows = append(rows, spec.Row{From: "c1", To: spec.ClusterIPOf(fmt.Sprintf("s%d", i), 80), Servers: scaleBoth})
	}
	return rows
}

// manyServices has a cluster of its own because it restarts a proxier.
func manyServices() spec.Scenario {
	return spec.Scenario{
		ID: "sc-many-services", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}}, Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{
			{Name: "they come", Do: []spec.Action{applyAll(scaleCrowd(services))}, Rows: sample(services)},
			{
				Name: "one more comes, and one goes", Do: []spec.Action{Apply(Service("extra", Selecting("web"))),
					Delete("Service", "s7")},
				Rows: append(sample(services), spec.Row{From: "c1", To: spec.ClusterIPOf("extra", 80), Servers: scaleBoth}),
			},
			{Name: "the proxier of n1 restarts", Check: func(ctx context.Context, w spec.World) error {
				spec.TryDo(w.ProxierControl("n1").Start(ctx))
				return w.Expect(ctx, sample(services)...)
			}},
			{Name: "all of them go but one", Check: func(ctx context.Context, w spec.World) error {
				last := ResolveLiteral(w, spec.ClusterIPOf(fmt.Sprintf("s%d", services-1), 80), "tcp")
				spec.MustDo(w.Store().Do(func(tx *store.Tx) (err error) {
					for _, o := range scaleCrowd(services)[1:] {
						if o.GetName() != "s7" {
							err = errors.Join(err, tx.Delete(store.KindService, w.Namespace(), o.GetName()))
						}
					}
					return err
				}))
				return w.Expect(ctx,
					spec.Row{From: "c1", To: spec.ClusterIPOf("s0", 80), Servers: scaleBoth},
					spec.Row{From: "c1", To: last, Want: spec.NotServed},
				)
			}},
		},
	}
}

// rounds is how often the pods of churn are replaced.
const rounds = 8

func churn() spec.Scenario {
	return spec.Scenario{
		ID: "sc-churn", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", UDP(8080)), Backend("a2", "n2", UDP(8080)),
			Service("web", Port(80, 8080), UDPPort(80, 8080)),
			Pod("r0", "n3", App("restless"), TCP(8080)), Service("restless"),
		},
		Steps: []spec.Step{
			{Check: During([]spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: scaleBoth},
				{From: "n1", To: spec.ClusterIPOf("web", 80), Servers: scaleBoth},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: scaleBoth},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "kept", Servers: scaleBoth},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Conn: "kept-udp", Servers: scaleBoth},
			}, func(ctx context.Context, w spec.World, t spec.Traffic) {
				for i := range rounds {
					replace(ctx, w, i)
					spec.TryDo(t.Rounds(ctx, 1))
				}
				spec.TryDo(w.Settle(ctx))
			})},
			{Name: "in the end", Rows: []spec.Row{{
				From: "c1", To: spec.ClusterIPOf("restless", 80), Times: 20, Servers: []string{fmt.Sprintf("r%d", rounds)},
			}}},
		},
	}
}

// replace puts another pod in the place of the i-th.
func replace(ctx context.Context, w spec.World, i int) {
	RunActions(ctx, w, Apply(Pod(fmt.Sprintf("r%d", i+1), fmt.Sprintf("n%d", i%3+1), App("restless"), TCP(8080))),
		Delete("Pod", fmt.Sprintf("r%d", i)))
}

// firstPacketLatency measures no time, which on a busy machine says nothing. It counts: a first packet that is lost, or
// held up for a second, is sent again (RFC 6298).
func firstPacketLatency() spec.Scenario {
	return spec.Scenario{
		ID: "sc-first-packet-latency", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{{
			Do: []spec.Action{applyAll(scaleCrowd(100))},
			Check: func(ctx context.Context, w spec.World) error {
				const connections = 20
				caught := spec.Try(CapturePackets(w, func() error {
					row := spec.Row{From: "c1", To: spec.ClusterIPOf("s99", 80), Times: connections, Servers: scaleBoth}
					established := row
					established.Times, established.Conn = 0, "kept"
					spec.TryDo(w.Expect(ctx, row, established))
					return w.Expect(ctx, established)
				}, "c1"))
				return sentOnce(caught, len(w.Lab().Stack().Families())*(connections+1))
			},
		}},
	}
}

// sentOnce wants as many connections, and one SYN for each of them.
func sentOnce(caught []CapturedPacket, connections int) error {
	syns := map[netip.AddrPort]int{}
	for _, c := range caught {
		if c.Direction == observe.Out && c.Flags == "SYN" {
			syns[c.Src]++
		}
	}
	if len(syns) != connections {
		return spec.HarnessErrorf("the capture shows %d connections, not %d", len(syns), connections)
	}
	for from, n := range syns {
		if n > 1 {
			return fmt.Errorf("the first packet of the connection from %s was sent %d times", from, n)
		}
	}
	return nil
}
