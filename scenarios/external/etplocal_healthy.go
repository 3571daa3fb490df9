// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

const lbIPv4, lbIPv6 = "203.0.113.13", "2001:db8:113::13"

// healthyNodes makes the router a load balancer that does what cloud ones do: it asks every node's health-check port
// and sends the load balancer's address to the nodes that say yes.
func healthyNodes() spec.Scenario {
	return spec.Scenario{
		ID:    "etp-local-lb-only-healthy-nodes",
		Needs: []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.HealthCheckNodePort, spec.SourceAddress, spec.KernelNAT},
		Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{
			{
				Name: "pods on n1 and n2",
				Do:   []spec.Action{Ingress("web", lbIPv4, lbIPv6)},
				Check: func(ctx context.Context, w spec.World) error {
					return balanced(ctx, w, []string{"n1", "n2"}, []string{"a1", "a2"})
				},
			},
			{
				Name: "the pod on n2 is gone",
				Do:   []spec.Action{Delete("Pod", "a2")},
				Check: func(ctx context.Context, w spec.World) error {
					return balanced(ctx, w, []string{"n1"}, []string{"a1"})
				},
			},
		},
	}
}

// balanced asks the health-check ports, wants exactly the nodes to say yes, sends them traffic as the load balancer
// would, and wants all of it answered and none of it seen by n3.
func balanced(ctx context.Context, w spec.World, want, pods []string) error {
	for _, family := range w.Lab().Stack().Families() {
		healthy, err := healthyOver(ctx, w, family)
		if err != nil {
			return err
		}
		if !slices.Equal(healthy, want) {
			return fmt.Errorf("over %s the health-check port says that the nodes %v have a pod; it is %v", family, healthy, want)
		}
	}
	if err := RouteTo(w, "router", lbIPv4, lbIPv6, want...); err != nil {
		return &spec.HarnessError{Err: err}
	}
	if err := w.Expect(ctx, spec.Row{
		From: "client", To: spec.IngressOf("web", 80), Times: 60, By: pods, SeenAs: spec.Itself(),
	}); err != nil {
		return err
	}
	flows, err := w.Flows(ctx, "n3", toLoadBalancer)
	if err == nil && len(flows) > 0 {
		err = fmt.Errorf("n3 has never had a pod, but got %d connections from the load balancer", len(flows))
	}
	return err
}

func toLoadBalancer(f observe.Flow) bool {
	to := f.Orig.Dst.Addr()
	return to == netip.MustParseAddr(lbIPv4) || to == netip.MustParseAddr(lbIPv6)
}

// healthyOver are the nodes whose health-check port answers 200, asked from the router.
func healthyOver(ctx context.Context, w spec.World, family lab.Family) ([]string, error) {
	port, err := HealthPort(w, "web")
	if err != nil {
		return nil, err
	}
	var healthy []string
	for _, n := range w.Lab().Nodes() {
		health, err := AskHealth(ctx, w, "router", "/", netip.AddrPortFrom(n.Addr(family), port))
		if err != nil {
			return nil, fmt.Errorf("the health-check port of %s: %w", n.Name(), err)
		}
		if health.Code == http.StatusOK {
			healthy = append(healthy, n.Name())
		}
	}
	return healthy, nil
}
