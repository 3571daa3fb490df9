// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// needs are what all health-check ports take.
var needs = []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.HealthCheckNodePort}

// healthcheck returns the scenarios of health checks: the port of a Service on which each node reports to load balancers
// whether it has pods of its own, and the health of the proxier itself.
func healthcheck() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "hc-reflects-local-endpoints",
			Needs: needs,
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "a pod on n1", Check: says(codes{"n1": 200, "n2": 503, "n3": 503})},
				{Name: "one on n3 too", Do: []spec.Action{Apply(Backend("a3", "n3"))},
					Check: says(codes{"n1": 200, "n2": 503, "n3": 200})},
				{Name: "that on n1 turns unready", Do: []spec.Action{Readiness("a1", false)},
					Check: says(codes{"n1": 503, "n2": 503, "n3": 200})},
				{Name: "that on n3 goes, that on n1 is back", Do: []spec.Action{Delete("Pod", "a3"), Readiness("a1", true)},
					Check: says(codes{"n1": 200, "n2": 503, "n3": 503})},
			},
		},
		bodyAndWeight(),
		{
			ID:    "hc-terminating-only",
			Needs: append([]spec.Feature{spec.TerminatingFallback}, needs...),
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "running", Check: says(codes{"n1": 200, "n2": 200, "n3": 503})},
				{
					Name: "the pod on n1 terminates", Do: []spec.Action{Terminate("a1", true)},
					Rows:  []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, By: []string{"a1"}}},
					Check: says(codes{"n1": 503, "n2": 200, "n3": 503}),
				},
			},
		},
		portLifecycle(),
		allowedByFirewall(),
		listenScope(),
		proxierHealth(),
	}
}

// codes are the answers of nodes; 0 stands for a refused connection.
type codes map[string]int

// says wants the nodes' health-check ports of Service web to answer so.
func says(want codes) func(context.Context, spec.World) error {
	return func(ctx context.Context, w spec.World) error {
		port, err := HealthPort(w, "web")
		if err != nil {
			return err
		}
		return saysAt(ctx, w, port, "/", want)
	}
}

// saysAt wants nodes to answer so to an HTTP request from outside of the cluster.
func saysAt(ctx context.Context, w spec.World, port uint16, path string, want codes) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	for _, f := range w.Lab().Stack().Families() {
		for node, code := range want {
			health, err := AskHealth(ctx, w, "client", path, netip.AddrPortFrom(w.Lab().Node(node).Addr(f), port))
			if err != nil {
				return fmt.Errorf("%s over %s: %w", node, f, err)
			}
			if health.Code != code {
				return fmt.Errorf("%s over %s: port %d answers %s to %s; want %s", node, f, port, inWords(health.Code), path,
					inWords(code))
			}
		}
	}
	return nil
}

func inWords(code int) string {
	if code == 0 {
		return "with a refusal"
	}
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// setPolicy changes the external traffic policy of Service web.
func setPolicy(to corev1.ServiceExternalTrafficPolicy) spec.Action {
	return Edit("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = to })
}
