// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// drift lets an endpoint leave while a connection to it is open. IPVS keeps such an endpoint, with weight 0, so a
// proxier of IPVS must also find out that the endpoint is back.
func drift() spec.Scenario {
	return spec.Scenario{
		ID: "rr-restart-with-drift", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web"),
			Service("gone", Selecting("web"), NodePort()), Service("changed", Selecting("web")),
		},
		Steps: []spec.Step{
			{
				Name: "a connection to a2 is open", Do: []spec.Action{Readiness("a3", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "open", By: []string{"a2"}}},
			},
			{
				Name: "a3 takes the place of a2", Do: []spec.Action{Readiness("a3", true), Readiness("a2", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a3"}}},
			},
			{Name: "much changes while the proxier of n1 is away", Check: changesWhileAway},
		},
	}
}

func changesWhileAway(ctx context.Context, w spec.World) error {
	var former []spec.Target
	for _, t := range []spec.Target{
		spec.ClusterIPOf("gone", 80), spec.NodePortAt("n1", "gone", 80), spec.ClusterIPOf("changed", 80),
	} {
		at, err := Pin(w, t, "tcp")
		if err != nil {
			return err
		}
		former = append(former, at)
	}
	if err := w.Life("n1").Kill(ctx); err != nil {
		return err
	}
	for _, change := range []spec.Action{
		Readiness("a2", true), Delete("Service", "gone"), Apply(Service("new", Selecting("web"), NodePort())),
		Edit("changed", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }),
	} {
		if err := change.Run(ctx, w); err != nil {
			return spec.HarnessErrorf("%s: %w", change.Name, err)
		}
	}
	if err := w.Life("n1").Start(ctx); err != nil {
		return err
	}
	both := []string{"a2", "a3"}
	return w.Expect(ctx,
		spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: both, Even: true},
		spec.Row{From: "c1", To: spec.ClusterIPOf("new", 80), By: both},
		spec.Row{From: "client", To: spec.NodePortAt("n1", "new", 80), By: both},
		spec.Row{From: "c1", To: spec.ClusterIPOf("changed", 81), By: both},
		spec.Row{From: "c1", To: former[0], Want: spec.NotServed},
		spec.Row{From: "client", To: former[1], Want: spec.NotServed},
		spec.Row{From: "c1", To: former[2], Want: spec.NotServed},
	)
}
