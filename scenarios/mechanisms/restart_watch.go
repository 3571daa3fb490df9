// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// leftoverDraws is how many connections would reach, but for one case in four million, one of two endpoints.
const leftoverDraws = 22

// watchRelist deletes an endpoint, a slice and a Service while nobody can tell the proxier, and nothing else that would
// make it look again.
func watchRelist() spec.Scenario {
	to := func(service string, servers ...string) spec.Row {
		return spec.Row{From: "c1", To: spec.ClusterIPOf(service, 80), Servers: servers}
	}
	return spec.Scenario{
		ID: "rr-watch-relist", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}}, Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("fewer", Selecting("")), Service("none", Selecting("")), Service("gone", Selecting("")),
		},
		Steps: []spec.Step{
			{
				Name: "all are there",
				Do: []spec.Action{Endpoints("fewer", "fewer", "", 8080, "a1", "a2"),
					Endpoints("none", "none", "", 8080, "a2"), Endpoints("gone", "gone", "", 8080, "a2")},
				Rows: []spec.Row{to("fewer", "a1", "a2"), to("none", "a2"), to("gone", "a2")},
			},
			{Name: "some are gone when the watches are back", Check: func(ctx context.Context, w spec.World) error {
				gone := ResolveLiteral(w, spec.ClusterIPOf("gone", 80), "tcp")
				resume := spec.Try(w.ProxierControl("n1").BreakWatches(ctx))
				defer resume()
				RunActions(ctx, w, Endpoints("fewer", "fewer", "", 8080, "a1"), DeleteSlice("none"),
					Delete("Service", "gone"), DeleteSlice("gone"))
				resume()
				fewer, none := to("fewer", "a1"), to("none")
				fewer.Times, none.Want = leftoverDraws, spec.Refused
				return w.Expect(ctx, fewer, none, spec.Row{From: "c1", To: gone, Want: spec.NotServed})
			}},
		},
	}
}
