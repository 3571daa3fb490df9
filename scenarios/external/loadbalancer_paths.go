// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func fromExternal() spec.Scenario {
	return spec.Scenario{
		ID:    "lb-vip-from-external",
		Needs: []spec.Feature{spec.LoadBalancer},
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
		Steps: []spec.Step{{
			Do: []spec.Action{Ingress("web", "203.0.113.27", "2001:db8:113::27"),
				RouteVia("client", "203.0.113.27", "2001:db8:113::27", "n1")},
			Check: func(ctx context.Context, w spec.World) error {
				return awayFromRouter(ctx, w, spec.Row{
					From: "client", To: spec.IngressOf("web", 80), Times: 10, By: []string{"a1", "a2"}, Port: 8080,
					SeenAs: spec.NodeAddr("n1"),
				})
			},
		}},
	}
}

func shortcut() spec.Scenario {
	return spec.Scenario{
		ID:    "lb-vip-shortcut-in-cluster",
		Needs: []spec.Feature{spec.LoadBalancer},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
		Steps: []spec.Step{{
			Do: []spec.Action{Ingress("web", "203.0.113.28", "2001:db8:113::28")},
			Check: func(ctx context.Context, w spec.World) error {
				return awayFromRouter(ctx, w,
					spec.Row{From: "c1", To: spec.IngressOf("web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
					spec.Row{From: "n1", To: spec.IngressOf("web", 80), By: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
				)
			},
		}},
	}
}

// awayFromRouter wants the rows to hold, and no packet of theirs to pass the router, where the load balancer would be.
func awayFromRouter(ctx context.Context, w spec.World, rows ...spec.Row) error {
	caught, err := Catch(w, func() error { return w.Expect(ctx, rows...) }, "router")
	if err != nil {
		return err
	}
	for _, f := range w.Lab().Stack().Families() {
		vip, err := w.Resolve(rows[0].To, f, "tcp")
		if err != nil {
			return err
		}
		for _, c := range caught {
			if c.Src == vip || c.Dst == vip {
				return fmt.Errorf("the router, where the load balancer would be, saw %s", c.Packet)
			}
		}
	}
	return nil
}
