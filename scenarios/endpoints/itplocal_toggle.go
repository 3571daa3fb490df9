// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// toggle opens a connection and a flow while the only pod is on another node, and uses them all the time.
func toggle() spec.Scenario {
	return spec.Scenario{
		ID:    "itp-toggle",
		Needs: []spec.Feature{spec.ClusterIP, spec.ITPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), Service("web", Port(80, 8080), UDPPort(80, 8080)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			return w.During(ctx, []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "stream", By: []string{"a2"}},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Conn: "datagrams", If: spec.UDPDrains,
					By: []string{"a2"}},
			}, func(ctx context.Context, t spec.Traffic) error {
				if err := w.Apply(Backend("a1", "n1", UDP(8080))); err != nil {
					return &spec.HarnessError{Err: err}
				}
				err := underPolicy(ctx, w, t, corev1.ServiceInternalTrafficPolicyLocal, spec.Row{Times: 25, By: []string{"a1"}})
				if err != nil {
					return err
				}
				return underPolicy(ctx, w, t, corev1.ServiceInternalTrafficPolicyCluster,
					spec.Row{By: []string{"a1", "a2"}, Even: true})
			})
		}}},
	}
}

// underPolicy sets the policy, wants the row to hold for new connections of both protocols, and lets the old ones go
// on.
func underPolicy(ctx context.Context, w spec.World, t spec.Traffic, to corev1.ServiceInternalTrafficPolicy,
	row spec.Row) error {
	if err := Edit("web", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &to }).Run(ctx, w); err != nil {
		return &spec.HarnessError{Err: err}
	}
	row.From, row.To = "c1", spec.ClusterIPOf("web", 80)
	datagrams := row
	datagrams.Proto = "udp"
	if err := w.Expect(ctx, row, datagrams); err != nil {
		return err
	}
	return t.Rounds(ctx, 3)
}
