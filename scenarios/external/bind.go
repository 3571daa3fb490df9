// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// metricsPort is the default port of kube-proxy's metrics.
const metricsPort = 10249

// portsTaken returns the scenarios of a proxier that starts on a node where another process has its ports.
func portsTaken() []spec.Scenario {
	before := spec.Step{Name: "before", Rows: []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"b2"}},
		{From: "b2", To: spec.ClusterIPOf("web", 80), Servers: []string{"b2"}},
	}}
	given := []store.Object{Pod("c1", "n1"), Backend("b2", "n2"), Service("web")}
	return []spec.Scenario{
		{
			ID:      "proxier-bind-hard-fail",
			Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}, Proxy: spec.ProxyConfig{BindHardFail: true}},
			Needs:   []spec.Feature{spec.ClusterIP, spec.ProxierHealthz, spec.Metrics, spec.BindHardFail},
			Given:   given,
			Steps: []spec.Step{before,
				{Name: "n1 has no port for metrics", Check: endsWithout("n1", metricsPort)},
				{Name: "n2 has none for health", Check: endsWithout("n2", proxierPort)},
			},
		},
		{
			ID: "proxier-port-taken", Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.ProxierHealthz, spec.Metrics},
			Given: given,
			Steps: []spec.Step{before, {
				Name: "no port for metrics on n1, and none for health on n2",
				Do: []spec.Action{takePort("n1", metricsPort), takePort("n2", proxierPort),
					Apply(Service("new", Selecting("web")))},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("new", 80), Servers: []string{"b2"}},
					{From: "b2", To: spec.ClusterIPOf("new", 80), Servers: []string{"b2"}},
				},
			}},
		},
	}
}

// takePort has another process open a port of a node before the proxier starts again.
func takePort(node string, port uint16) spec.Action { return Restart(node, Serve(node, "tcp", port)) }

// endsWithout wants the proxier of a node to end by itself if another process has a port. It may program a state
// before.
func endsWithout(node string, port uint16) Check {
	return func(ctx context.Context, w spec.World) error {
		RunActions(ctx, w, takePort(node, port))
		tries := 0
		err := Eventually(ctx, func(ctx context.Context) error {
			tries++
			RunActions(ctx, w, Apply(Service(fmt.Sprintf("try-%d", tries), Selecting("web"))))
			err := w.Settle(ctx)
			if errors.As(err, new(*spec.EndedError)) {
				return nil
			}
			return errors.Join(errors.New("the proxier of "+node+" runs without a port that it needs"), err)
		})
		if err != nil {
			return err
		}
		return w.ProxierControl(node).Kill(ctx) // later steps do not wait for a program that was killed
	}
}
