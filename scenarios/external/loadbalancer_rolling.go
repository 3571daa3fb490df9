// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// everyPod are the pods of rollingUpdate, before and after.
var everyPod = []string{"a1", "a2", "b1", "b3"}

// doors are addresses of the Service with policy Local, each of which leads to one node: what a load balancer chooses
// from.
var doors = map[string]spec.Target{
	"n1": spec.AddrAt("203.0.113.35", "2001:db8:113::35", 80),
	"n2": spec.AddrAt("203.0.113.36", "2001:db8:113::36", 80),
	"n3": spec.AddrAt("203.0.113.37", "2001:db8:113::37", 80),
}

func rollingUpdate() spec.Scenario {
	return spec.Scenario{
		ID:    "lb-rolling-update",
		Needs: []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.HealthCheckNodePort, spec.TerminatingFallback},
		Given: []store.Object{
			Backend("a1", "n1"), Backend("a2", "n2"), Service("any", LoadBalancer(), Selecting("web")),
			Service("local", LoadBalancer(), ETPLocal(), Selecting("web")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Ingress("any", "203.0.113.34", "2001:db8:113::34"), RouteVia("client", "203.0.113.34", "2001:db8:113::34", "n3"),
				hasFor("local", doors["n1"], doors["n2"], doors["n3"]), toDoor("n1"), toDoor("n2"), toDoor("n3"),
			},
			Check: func(ctx context.Context, w spec.World) error {
				for _, change := range []spec.Action{
					Apply(Backend("b3", "n3")), Terminate("a1", true), Delete("Pod", "a1"),
					Apply(Backend("b1", "n1")), Terminate("a2", true), Delete("Pod", "a2"),
				} {
					if err := underTraffic(ctx, w, change); err != nil {
						return fmt.Errorf("%s: %w", change.Name, err)
					}
				}
				return nil
			},
		}},
	}
}

func toDoor(node string) spec.Action { return RouteVia("client", doors[node].V4, doors[node].V6, node) }

// underTraffic makes a change while clients connect, through the nodes that a load balancer takes for healthy before
// it.
func underTraffic(ctx context.Context, w spec.World, change spec.Action) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	rows := []spec.Row{{From: "client", To: spec.IngressOf("any", 80), By: everyPod}}
	for node, door := range doors {
		for _, f := range w.Lab().Stack().Families() {
			healthy, err := isHealthy(ctx, w, w.Lab().Node(node).Addr(f))
			if err != nil {
				return err
			}
			if healthy {
				rows = append(rows, spec.Row{From: "client", To: door, Family: f, By: everyPod})
			}
		}
	}
	return w.During(ctx, rows, func(ctx context.Context, t spec.Traffic) error {
		if err := change.Run(ctx, w); err != nil {
			return &spec.HarnessError{Err: err}
		}
		if err := w.Settle(ctx); err != nil {
			return err
		}
		return t.Rounds(ctx, 5)
	})
}

// isHealthy asks the health-check port of a node, whose address it is given.
func isHealthy(ctx context.Context, w spec.World, node netip.Addr) (bool, error) {
	port, err := HealthPort(w, "local")
	if err != nil {
		return false, err
	}
	health, err := AskHealth(ctx, w, "client", "/", netip.AddrPortFrom(node, port))
	return health.Code == http.StatusOK, err
}
