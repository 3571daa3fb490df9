// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// needs are what all health-check ports take.
var needs = []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.HealthCheckNodePort}

// healthcheck returns the scenarios of health checks: the port of a Service on which each node reports to load
// balancers whether it has pods of its own, and the health of the proxier itself.
func healthcheck() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "hc-reflects-local-endpoints", Needs: needs,
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
			ID: "hc-terminating-only", Needs: append([]spec.Feature{spec.TerminatingFallback}, needs...),
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "running", Check: says(codes{"n1": 200, "n2": 200, "n3": 503})},
				{
					Name: "the pod on n1 terminates", Do: []spec.Action{Terminate("a1", true)},
					Rows:  []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, Servers: []string{"a1"}}},
					Check: says(codes{"n1": 503, "n2": 200, "n3": 503}),
				},
			},
		},
		listenScope(),
	}
}

// healthPorts returns the scenarios of ports that come and go, and of the proxier's own health.
func healthPorts() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "hc-port-lifecycle", Needs: needs,
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				open := codes{"n1": 200, "n2": 503, "n3": 503}
				closed := codes{"n1": 0, "n2": 0, "n3": 0}
				first := HealthPort(w, "web")
				if err := saysAt(ctx, w, first, "/", open); err != nil {
					return fmt.Errorf("at first: %w", err)
				}
				spec.TryDo(after(ctx, w, policy(corev1.ServiceExternalTrafficPolicyCluster), first, closed))
				RunActions(ctx, w, policy(corev1.ServiceExternalTrafficPolicyLocal))
				second := HealthPort(w, "web")
				if err := saysAt(ctx, w, second, "/", open); err != nil {
					return fmt.Errorf("policy Local again: %w", err)
				}
				return after(ctx, w, Delete("Service", "web"), second, closed)
			}}},
		},
		// It closes the INPUT chain of n1 to new TCP connections from outside.
		{
			ID: "hc-allowed-by-firewall", Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
			Needs: append([]spec.Feature{spec.OpensFirewall}, needs...),
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{{
				Do:    []spec.Action{Serve("n1", "tcp", 8031), closeInput("n1")},
				Rows:  []spec.Row{{From: "client", To: spec.HostAt("n1", 8031), Want: spec.Silence}},
				Check: says(codes{"n1": 200, "n2": 503}),
			}},
		},
		// It has a cluster of its own, because pods of Deployments are not scheduled on a node with the taint of its
		// deletion.
		{
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
		},
		configuredHealthz(),
		writesRefused(),
	}
}

// configuredHealthz has an address of the loopback device, which no other node reaches.
func configuredHealthz() spec.Scenario {
	c := Configured()
	return spec.Scenario{
		ID: "hc-proxier-health-configured", Cluster: c, Needs: []spec.Feature{spec.ClusterIP, spec.ProxierHealthz},
		Given: NearAndFar(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			at, elsewhere := c.Proxy.HealthzAddress, w.Lab().Node("n1").Addr(w.Lab().Stack().Families()[0])
			for _, path := range []string{"/healthz", "/livez"} {
				for addr, code := range map[netip.AddrPort]int{
					at: http.StatusOK, netip.AddrPortFrom(elsewhere, at.Port()): 0,
					netip.AddrPortFrom(at.Addr(), proxierPort): 0, netip.AddrPortFrom(elsewhere, proxierPort): 0,
				} {
					if got := spec.Try(AskHealth(ctx, w, "n1", path, addr)); got.Code != code {
						return fmt.Errorf("%s answers %s to %s; want %s", addr, inWords(got.Code), path, inWords(code))
					}
				}
			}
			return nil
		}}},
	}
}

// codes are the answers of nodes; 0 stands for a refused connection.
type codes map[string]int

// says wants the nodes' health-check ports of Service web to answer so.
func says(want codes) Check {
	return func(ctx context.Context, w spec.World) error {
		return saysAt(ctx, w, HealthPort(w, "web"), "/", want)
	}
}

// saysAt wants nodes to answer so to an HTTP request from outside of the cluster.
func saysAt(ctx context.Context, w spec.World, port uint16, path string, want codes) error {
	spec.TryDo(w.Settle(ctx))
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

func bodyAndWeight() spec.Scenario {
	return spec.Scenario{
		ID: "hc-body-and-weight", Needs: append([]spec.Feature{spec.HealthCheckBody}, needs...),
		Given: []store.Object{
			Backend("a1", "n1", TCP(9090)), Backend("b1", "n1", TCP(9090)), Backend("a2", "n2", TCP(9090)),
			Service("web", LoadBalancer(), ETPLocal(), Port(80, 8080), Port(81, 9090)),
		},
		Steps: []spec.Step{{Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
			var errs []error
			for node, pods := range map[string]int{"n1": 2, "n2": 1, "n3": 0} {
				if err := tells(ctx, w, node, f, pods, true); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", node, err))
				}
			}
			return errors.Join(errs...)
		})}},
	}
}

// tells checks the status, the body and the weight of one node's answer.
func tells(ctx context.Context, w spec.World, node string, f lab.Family, pods int, healthy bool) error {
	health, err := AskHealth(ctx, w, "client", "/", netip.AddrPortFrom(w.Lab().Node(node).Addr(f), HealthPort(w, "web")))
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
	code := http.StatusServiceUnavailable
	if pods > 0 && healthy {
		code = http.StatusOK
	}
	switch weight := health.Header.Get("X-Load-Balancing-Endpoint-Weight"); {
	case body.Service.Namespace != w.Namespace() || body.Service.Name != "web":
		return fmt.Errorf("it speaks of Service %s/%s", body.Service.Namespace, body.Service.Name)
	case body.LocalEndpoints != pods:
		return fmt.Errorf("localEndpoints is %d; the node has %d pods", body.LocalEndpoints, pods)
	case weight != fmt.Sprint(pods):
		return fmt.Errorf("X-Load-Balancing-Endpoint-Weight is %q; the node has %d pods", weight, pods)
	case body.ServiceProxyHealthy != healthy:
		return fmt.Errorf("serviceProxyHealthy is %t", body.ServiceProxyHealthy)
	case health.Code != code:
		return fmt.Errorf("it answers %s; want %s", inWords(health.Code), inWords(code))
	}
	return nil
}

// after makes a change and wants the port to answer so.
func after(ctx context.Context, w spec.World, change spec.Action, port uint16, want codes) error {
	RunActions(ctx, w, change)
	if err := saysAt(ctx, w, port, "/", want); err != nil {
		return fmt.Errorf("after %q: %w", change.Name, err)
	}
	return nil
}

// closeInput makes INPUT drop all but what is not TCP, comes by loopback, or belongs to a connection.
func closeInput(node string) spec.Action {
	return Firewall("close INPUT of "+node, node, "-A INPUT ! -p tcp -j ACCEPT", "-A INPUT -i lo -j ACCEPT",
		"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-P INPUT DROP")
}

// busyPort is a health-check port that another process has taken.
const busyPort = 30031

func listenScope() spec.Scenario {
	return spec.Scenario{
		ID: "hc-listen-scope", NodePorts: []uint16{busyPort}, Cluster: OnPrimaryAddresses(),
		Needs: append([]spec.Feature{spec.NodePortAddresses}, needs...),
		Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{
			{Name: "limited to the primary address", Check: func(ctx context.Context, w spec.World) error {
				spec.TryDo(says(codes{"n1": 200, "n2": 503})(ctx, w))
				return closedElsewhere(ctx, w)
			}},
			{
				Name: "another process has the port of a Service to come",
				Do: []spec.Action{Serve("n1", "tcp", busyPort), Apply(Service("busy", Selecting("web"), LoadBalancer(), ETPLocal(),
					func(s *corev1.Service) {
						s.Spec.HealthCheckNodePort = busyPort
					}))},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "busy", 80), Servers: []string{"a1"}},
					{From: "client", To: spec.HostAt("n1", busyPort), Servers: []string{"n1"}},
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
	port := HealthPort(w, "web")
	for _, f := range w.Lab().Stack().Families() {
		at := spec.Must(w.Resolve(spec.HostAt("n1", port).AtAddr(spec.Secondary), f, "tcp"))
		health := spec.Try(AskHealth(ctx, w, "client", "/", at))
		if health.Code != 0 {
			return fmt.Errorf("the health-check port is open on %s, which serves no NodePorts", at)
		}
	}
	return nil
}

// proxierPort is the default port of kube-proxy's own health.
const proxierPort = 10256

// proxierSays wants these answers to /healthz and /livez, and the Service's own port to answer as ever.
func proxierSays(healthz, livez codes) Check {
	return func(ctx context.Context, w spec.World) error {
		spec.TryDo(saysAt(ctx, w, proxierPort, "/healthz", healthz))
		spec.TryDo(saysAt(ctx, w, proxierPort, "/livez", livez))
		return says(codes{"n1": 200, "n2": 503})(ctx, w)
	}
}

// taint marks a node as the autoscaler does before it deletes the machine, or takes the mark away.
func taint(node string, doomed bool) spec.Action {
	const key = "ToBeDeletedByClusterAutoscaler"
	return NewAction(fmt.Sprintf("node %s doomed=%t", node, doomed), func(w spec.World) error {
		return store.Update(w.Store(), "", node, func(n *corev1.Node) {
			n.Spec.Taints = nil
			if doomed {
				n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
			}
		})
	})
}
