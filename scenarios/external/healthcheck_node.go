// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// allowedByFirewall closes the INPUT chain of n1 to new TCP connections from outside.
func allowedByFirewall() spec.Scenario {
	return spec.Scenario{
		ID:      "hc-allowed-by-firewall",
		Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
		Needs:   append([]spec.Feature{spec.HealthCheckAccept}, needs...),
		Given:   []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{{
			Do:    []spec.Action{Serve("n1", "tcp", 8031), closeInput("n1")},
			Rows:  []spec.Row{{From: "client", To: spec.HostAt("n1", 8031), Want: spec.Silence}},
			Check: says(codes{"n1": 200, "n2": 503}),
		}},
	}
}

// closeInput makes INPUT drop all but what is not TCP, comes by loopback, or belongs to a connection.
func closeInput(node string) spec.Action {
	return spec.Action{Name: "close INPUT of " + node, Run: func(ctx context.Context, w spec.World) error {
		for _, f := range w.Lab().Stack().Families() {
			for _, rule := range [][]string{
				{"-A", "INPUT", "!", "-p", "tcp", "-j", "ACCEPT"},
				{"-A", "INPUT", "-i", "lo", "-j", "ACCEPT"},
				{"-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"},
				{"-P", "INPUT", "DROP"},
			} {
				if _, err := w.Run(ctx, node, append([]string{IPTables(w, f), "-w"}, rule...)...); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// busyPort is a health-check port that another process has taken.
const busyPort = 30031

func listenScope() spec.Scenario {
	return spec.Scenario{
		ID: "hc-listen-scope", NodePorts: []uint16{busyPort}, Cluster: OnPrimaryAddresses(),
		Needs: needs,
		Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{
			{Name: "limited to the primary address", Check: func(ctx context.Context, w spec.World) error {
				if err := says(codes{"n1": 200, "n2": 503})(ctx, w); err != nil {
					return err
				}
				return closedElsewhere(ctx, w)
			}},
			{
				Name: "another process has the port of a Service to come",
				Do: []spec.Action{Serve("n1", "tcp", busyPort), Apply(Service("busy", Selecting("web"), LoadBalancer(), ETPLocal(),
					func(s *corev1.Service) {
						s.Spec.HealthCheckNodePort = busyPort
					}))},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "busy", 80), By: []string{"a1"}},
					{From: "client", To: spec.HostAt("n1", busyPort), By: []string{"n1"}},
				},
				Check: func(ctx context.Context, w spec.World) error {
					return saysAt(ctx, w, busyPort, "/", codes{"n2": 503, "n3": 503})
				},
			},
		},
	}
}

// closedElsewhere wants the second addresses of n1 to refuse the health-check port.
func closedElsewhere(ctx context.Context, w spec.World) error {
	port, err := HealthPort(w, "web")
	if err != nil {
		return err
	}
	for _, f := range w.Lab().Stack().Families() {
		at, err := w.Resolve(spec.HostAt("n1", port).On(spec.Secondary), f, "tcp")
		if err != nil {
			return err
		}
		health, err := AskHealth(ctx, w, "client", "/", at)
		if err != nil {
			return err
		}
		if health.Code != 0 {
			return fmt.Errorf("the health-check port is open on %s, which serves no NodePorts", at)
		}
	}
	return nil
}

// proxierPort is where kube-proxy tells of its own health, by default.
const proxierPort = 10256

// proxierHealth has a cluster of its own, because pods of Deployments keep away from a node that is to be deleted.
func proxierHealth() spec.Scenario {
	return spec.Scenario{
		ID: "hc-proxier-health", Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
		Needs: append([]spec.Feature{spec.ProxierHealthz}, needs...),
		Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{
			{Name: "all is well", Check: proxierSays(codes{"n1": 200, "n2": 200}, codes{"n1": 200, "n2": 200})},
			{Name: "n1 is to be deleted", Do: []spec.Action{taint("n1", true)},
				Check: proxierSays(codes{"n1": 503, "n2": 200}, codes{"n1": 200, "n2": 200})},
			{Name: "n1 stays", Do: []spec.Action{taint("n1", false)},
				Check: proxierSays(codes{"n1": 200, "n2": 200}, codes{"n1": 200, "n2": 200})},
		},
	}
}

// proxierSays wants these answers to /healthz and /livez, and the Service's own port to answer as ever.
func proxierSays(healthz, livez codes) func(context.Context, spec.World) error {
	return func(ctx context.Context, w spec.World) error {
		if err := saysAt(ctx, w, proxierPort, "/healthz", healthz); err != nil {
			return err
		}
		if err := saysAt(ctx, w, proxierPort, "/livez", livez); err != nil {
			return err
		}
		return says(codes{"n1": 200, "n2": 503})(ctx, w)
	}
}

// taint marks a node as the autoscaler does before it deletes the machine, or takes the mark away.
func taint(node string, doomed bool) spec.Action {
	const key = "ToBeDeletedByClusterAutoscaler"
	return spec.Action{Name: fmt.Sprintf("node %s doomed=%t", node, doomed),
		Run: func(_ context.Context, w spec.World) error {
			return store.Update(w.Store(), "", node, func(n *corev1.Node) {
				n.Spec.Taints = nil
				if doomed {
					n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
				}
			})
		}}
}
