// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/lab"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// writesRefused replaces the endpoint of a UDP flow while no rule can be written.
func writesRefused() spec.Scenario {
	flow := func(r spec.Row) []spec.Row {
		r.From, r.To, r.Proto, r.Conn = "c1", spec.ClusterIPOf("dns", 53), "udp", "dns"
		return []spec.Row{r}
	}
	return spec.Scenario{
		ID: "rr-writes-refused", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: world(Backend("d2", "n2", App("dns"), UDP(5353)), Backend("d3", "n3", App("dns"), UDP(5353)),
			Service("dns", UDPPort(53, 5353))),
		Steps: []spec.Step{
			{Name: "a flow to d2", Do: []spec.Action{Readiness("d3", false)}, Rows: flow(spec.Row{Servers: []string{"d2"}})},
			{Name: "no write succeeds", Check: During(every, func(ctx context.Context, w spec.World, t spec.Traffic) {
				refusal := spec.Must(w.ProxierControl("n1").RefuseWrites(ctx))
				RunActions(ctx, w, Readiness("d3", true), Readiness("d2", false))
				for range refusedChanges {
					RunActions(ctx, w, Apply(Service("passing", Selecting("web"))))
					spec.TryDo(refused(ctx, w, refusal))
					RunActions(ctx, w, Delete("Service", "passing"))
					spec.TryDo(t.Rounds(ctx, 2))
				}
				spec.MustDo(refusal.End())
				RunActions(ctx, w, Apply(Service("new", Selecting("web"))))
				spec.TryDo(w.Settle(ctx))
				spec.TryDo(t.Rounds(ctx, 5))
			})},
			{Name: "writes succeed again", Rows: append(flow(spec.Row{Servers: []string{"d3"}, MayMove: true, Times: 2}),
				spec.Row{From: "c1", To: spec.ClusterIPOf("new", 80), Servers: backends})},
		},
	}
}

// refusedChanges is how many changes meet a node that refuses writes: the first one may find a sync under way.
const refusedChanges = 3

// refused returns when more writes of each family have been refused.
func refused(ctx context.Context, w spec.World, refusal spec.Refusal) error {
	before := map[lab.Family]int{}
	for _, f := range w.Lab().Stack().Families() {
		before[f] = refusal.Writes(f)
	}
	return Eventually(ctx, func(context.Context) error {
		for f, n := range before {
			if refusal.Writes(f) == n {
				return fmt.Errorf("the proxier has not tried to write rules for %s", f)
			}
		}
		return nil
	})
}
