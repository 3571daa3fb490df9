// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// changes are the scenarios of policies and endpoints that change, and of pods as clients.
func changes() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "etp-local-pod-shortcut",
			Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{
				Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal()),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.60", "2001:db8:113::60")},
				Rows: []spec.Row{
					{From: "c3", To: spec.IngressOf("web", 80), By: []string{"a1", "a2"}, Even: true, SeenAs: spec.Itself()},
					{From: "c3", To: spec.NodePortAt("n3", "web", 80), By: []string{"a1", "a2"}, Even: true, SeenAs: spec.Itself()},
				},
			}},
		},
		{
			ID:    "etp-local-pod-to-other-node",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("a3", "n3"), Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.NodePortAt("n2", "web", 80), Times: 5, Want: spec.Reply | spec.Silence,
					By: []string{"a1", "a3"}},
			}}},
		},
		{
			ID:    "etp-local-toggle",
			Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort, spec.ETPLocal, spec.HealthCheckNodePort, spec.SourceAddress},
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "Local", Rows: append(underLocal, kept), Check: healthPortOpen},
				{Name: "Cluster", Do: []spec.Action{policy(corev1.ServiceExternalTrafficPolicyCluster)}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, SeenAs: spec.NodeAddr("n1")},
					{From: "client", To: spec.NodePortAt("n3", "web", 80), By: []string{"a1"}, SeenAs: spec.NodeAddr("n3")},
					kept,
				}, Check: formerHealthPortClosed},
				{Name: "Local again", Do: []spec.Action{policy(corev1.ServiceExternalTrafficPolicyLocal)},
					Rows: append(underLocal, kept), Check: healthPortOpen},
			},
		},
		{
			ID:    "etp-local-endpoint-moves",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "a pod on n1", Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 5,
					By: []string{"a1"}}}},
				{Name: "it leaves", Do: []spec.Action{Delete("Pod", "a1")}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
					{From: "client", To: spec.NodePortAt("n2", "web", 80), Times: 5, By: []string{"a2"}},
				}},
				{Name: "another one comes", Do: []spec.Action{Apply(Backend("b1", "n1"))}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 5, By: []string{"b1"}},
				}},
			},
		},
	}
}

var (
	underLocal = []spec.Row{
		{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, SeenAs: spec.Itself()},
		{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
	}
	// kept is a connection that lives through all changes.
	kept = spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "long", By: []string{"a1"}}
)

func policy(to corev1.ServiceExternalTrafficPolicy) spec.Action {
	return Edit("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = to })
}

// formerPort is where a Service keeps its health-check port in mind, for when it has none.
const formerPort = "viplab.example/former-health-port"

// healthPortOpen wants the health-check port to say that n1 alone has a pod.
func healthPortOpen(ctx context.Context, w spec.World) error {
	port, err := HealthPort(w, "web")
	if err != nil {
		return err
	}
	for node, want := range map[string]int{"n1": 200, "n3": 503} {
		if err := healthCode(ctx, w, node, port, want); err != nil {
			return err
		}
	}
	return store.Update(w.Store(), w.Namespace(), "web", func(s *corev1.Service) {
		s.Annotations = map[string]string{formerPort: fmt.Sprint(port)}
	})
}

// formerHealthPortClosed wants nodes to refuse the port that was open under policy Local.
func formerHealthPortClosed(ctx context.Context, w spec.World) error {
	s, _ := store.Get[*corev1.Service](w.Store(), w.Namespace(), "web")
	var port uint16
	if _, err := fmt.Sscan(s.Annotations[formerPort], &port); err != nil {
		return spec.HarnessErrorf("the former health-check port: %w", err)
	}
	return healthCode(ctx, w, "n1", port, 0)
}

// healthCode wants an HTTP status of a node's port; 0 stands for a refused connection.
func healthCode(ctx context.Context, w spec.World, node string, port uint16, want int) error {
	for _, f := range w.Lab().Stack().Families() {
		health, err := AskHealth(ctx, w, "client", "/", netip.AddrPortFrom(w.Lab().Node(node).Addr(f), port))
		if err != nil {
			return err
		}
		if health.Code != want {
			return fmt.Errorf("%s over %s: health-check port %d answers %d; want %d (0 is a refusal)", node, f, port,
				health.Code, want)
		}
	}
	return nil
}
