// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func modeSwitch() spec.Scenario {
	return spec.Scenario{
		ID: "rr-mode-switch", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SourceAddress, spec.KernelNAT, spec.SurvivesRestart,
			spec.ModeSwitch},
		Given: world(Service("gone", Selecting("web"), NodePort())),
		Steps: []spec.Step{
			{Name: "before", Rows: kept},
			{Name: "another mode takes over", Check: func(ctx context.Context, w spec.World) error {
				return w.During(ctx, kept, func(ctx context.Context, t spec.Traffic) error {
					return restartInTurn(
						func() error { return w.Life("n1").Switch(ctx) },
						func() error { return w.Settle(ctx) },
						func() error { return t.Rounds(ctx, 5) },
					)
				})
			}},
			{Name: "the other mode serves", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), By: backends, SeenAs: spec.Itself(), Flow: spec.TranslatedOn("n1")},
				{From: "n1", To: spec.ClusterIPOf("web", 80), By: backends},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: backends, Flow: spec.MasqueradedOn("n1")},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", By: backends, Flow: spec.TranslatedOn("n1")},
				{From: "c1", To: spec.ClusterIPOf("gone", 80), By: backends},
			}},
			{Name: "a Service goes, of which the old mode was not told", Check: func(ctx context.Context, w spec.World) error {
				var rows []spec.Row
				for from, to := range map[string]spec.Target{"c1": spec.ClusterIPOf("gone", 80),
					"client": spec.NodePortAt("n1", "gone", 80)} {
					at, err := Pin(w, to, "tcp")
					if err != nil {
						return err
					}
					rows = append(rows, spec.Row{From: from, To: at, Want: spec.NotServed})
				}
				if err := w.Store().Delete(store.KindService, w.Namespace(), "gone"); err != nil {
					return &spec.HarnessError{Err: err}
				}
				return w.Expect(ctx, rows...)
			}},
		},
	}
}
