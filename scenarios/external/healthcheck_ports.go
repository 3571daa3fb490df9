// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func bodyAndWeight() spec.Scenario {
	return spec.Scenario{
		ID:    "hc-body-and-weight",
		Needs: append([]spec.Feature{spec.HealthCheckBody}, needs...),
		Given: []store.Object{
			Backend("a1", "n1", TCP(9090)), Backend("b1", "n1", TCP(9090)), Backend("a2", "n2", TCP(9090)),
			Service("web", LoadBalancer(), ETPLocal(), Port(80, 8080), Port(81, 9090)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			if err := w.Settle(ctx); err != nil {
				return err
			}
			var errs []error
			for _, f := range w.Lab().Stack().Families() {
				for node, pods := range map[string]int{"n1": 2, "n2": 1, "n3": 0} {
					if err := tells(ctx, w, node, f, pods); err != nil {
						errs = append(errs, fmt.Errorf("%s over %s: %w", node, f, err))
					}
				}
			}
			return errors.Join(errs...)
		}}},
	}
}

// tells wants the body and the weight of one node's answer.
func tells(ctx context.Context, w spec.World, node string, f lab.Family, pods int) error {
	port, err := HealthPort(w, "web")
	if err != nil {
		return err
	}
	health, err := AskHealth(ctx, w, "client", "/", netip.AddrPortFrom(w.Lab().Node(node).Addr(f), port))
	if err != nil {
		return err
	}
	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.Unmarshal(health.Body, &body); err != nil {
		return fmt.Errorf("%.200q is not JSON: %w", health.Body, err)
	}
	switch weight := health.Header.Get("X-Load-Balancing-Endpoint-Weight"); {
	case body.Service.Namespace != w.Namespace() || body.Service.Name != "web":
		return fmt.Errorf("it speaks of Service %s/%s", body.Service.Namespace, body.Service.Name)
	case body.LocalEndpoints != pods:
		return fmt.Errorf("localEndpoints is %d; the node has %d pods", body.LocalEndpoints, pods)
	case weight != fmt.Sprint(pods):
		return fmt.Errorf("X-Load-Balancing-Endpoint-Weight is %q; the node has %d pods", weight, pods)
	case !body.ServiceProxyHealthy:
		return errors.New("serviceProxyHealthy is false")
	}
	return nil
}

func portLifecycle() spec.Scenario {
	return spec.Scenario{
		ID:    "hc-port-lifecycle",
		Needs: needs,
		Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			open := codes{"n1": 200, "n2": 503, "n3": 503}
			closed := codes{"n1": 0, "n2": 0, "n3": 0}
			first, err := HealthPort(w, "web")
			if err != nil {
				return err
			}
			if err := saysAt(ctx, w, first, "/", open); err != nil {
				return fmt.Errorf("at first: %w", err)
			}
			if err := after(ctx, w, setPolicy(corev1.ServiceExternalTrafficPolicyCluster), first, closed); err != nil {
				return err
			}
			if err := setPolicy(corev1.ServiceExternalTrafficPolicyLocal).Run(ctx, w); err != nil {
				return &spec.HarnessError{Err: err}
			}
			second, err := HealthPort(w, "web")
			if err != nil {
				return err
			}
			if err := saysAt(ctx, w, second, "/", open); err != nil {
				return fmt.Errorf("policy Local again: %w", err)
			}
			return after(ctx, w, Delete("Service", "web"), second, closed)
		}}},
	}
}

// after makes a change and wants the port to answer so.
func after(ctx context.Context, w spec.World, change spec.Action, port uint16, want codes) error {
	if err := change.Run(ctx, w); err != nil {
		return &spec.HarnessError{Err: err}
	}
	if err := saysAt(ctx, w, port, "/", want); err != nil {
		return fmt.Errorf("after %q: %w", change.Name, err)
	}
	return nil
}
