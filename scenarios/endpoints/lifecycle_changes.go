// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func programmingLatency() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-programming-latency",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			for i := range 50 {
				if err := Readiness("a2", i%2 == 1).Run(ctx, w); err != nil {
					return &spec.HarnessError{Err: err}
				}
			}
			// The last of the fifty made a2 ready; one more takes a1 away.
			if err := Readiness("a1", false).Run(ctx, w); err != nil {
				return &spec.HarnessError{Err: err}
			}
			return w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 30, By: []string{"a2"}})
		}}},
	}
}

func externalNameTransitions() spec.Scenario {
	return spec.Scenario{
		ID:    "svc-externalname-transitions",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{
			{Name: "ClusterIP, then ExternalName", Check: func(ctx context.Context, w spec.World) error {
				if err := w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1"}}); err != nil {
					return err
				}
				former, err := vipsOf(w, "web")
				if err != nil {
					return err
				}
				if err := w.Apply(Service("web", ExternalName("example.org"))); err != nil {
					return &spec.HarnessError{Err: err}
				}
				return w.Expect(ctx, spec.Row{From: "c1", To: spec.AddrAt(former[lab.V4], former[lab.V6], 80), Want: spec.NotServed})
			}},
			{Name: "ClusterIP again", Do: []spec.Action{Apply(Service("web"))}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1"}},
			}},
			{Name: "ExternalName, then NodePort", Do: []spec.Action{
				Apply(Service("web", ExternalName("example.org"))), Apply(Service("web", NodePort())),
			}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}},
			}},
		},
	}
}

// vipsOf are the ClusterIPs of a Service, by family.
func vipsOf(w spec.World, service string) (map[lab.Family]string, error) {
	s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), service)
	if !ok {
		return nil, spec.HarnessErrorf("there is no Service %s", service)
	}
	vips := map[lab.Family]string{}
	for _, ip := range s.Spec.ClusterIPs {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		vips[lab.FamilyOf(a)] = ip
	}
	return vips, nil
}
