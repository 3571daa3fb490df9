// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// etplocal returns the scenarios of externalTrafficPolicy Local: outside traffic stays on the node it came to and keeps
// its client's address.
func etplocal() []spec.Scenario {
	return slices.Concat(paths(), fromInside(), changes())
}

func paths() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "etp-local-source-preserved",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}, SeenAs: spec.ClientAddr(),
					Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID: "etp-local-only-local-endpoints", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"),
				Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 40, Servers: []string{"a1"}},
			}}},
		},
		etpLocalNoEndpointDrops(), etpLocalMasqueradeAll(),
		{
			ID: "etp-local-clusterip-unaffected", Needs: []spec.Feature{spec.ClusterIP, spec.ETPLocal},
			Given: []store.Object{Pod("c3", "n3"), Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c3", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
			}}},
		},
		{
			ID: "etp-local-host-shortcut", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.12", "2001:db8:113::12")},
				Rows: []spec.Row{
					{From: "n3", To: spec.IngressOf("web", 80), Servers: []string{"a1", "a2"}, Even: true,
						SeenAs: spec.NodeAddr("n3")},
				},
			}},
		},
		{
			ID: "etp-local-imbalance", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{
				Backend("a1", "n1"), Backend("a2", "n2"), Backend("b2", "n2"), Backend("c2", "n2"),
				Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 90, Servers: []string{"a1"}},
				{From: "client", To: spec.NodePortAt("n2", "web", 80), Servers: []string{"a2", "b2", "c2"}, Even: true},
			}}},
		},
		healthyNodes(),
	}
}

func etpLocalNoEndpointDrops() spec.Scenario {
	return spec.Scenario{
		ID:    "etp-local-no-endpoint-drops",
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.LoadBalancer, spec.ExternalIPs},
		Given: []store.Object{
			Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal(), ExternalIPs("198.51.100.11", "2001:db8:51::11")),
		},
		Steps: []spec.Step{
			{
				Name: "by way of the node without a pod",
				Do: []spec.Action{
					Ingress("web", "203.0.113.11", "2001:db8:113::11"),
					RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n3"),
					RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n3"),
				},
				Check: func(ctx context.Context, w spec.World) error {
					return noEndpointSees(ctx, w, []string{"a1"},
						spec.Row{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
						spec.Row{From: "client", To: spec.IngressOf("web", 80), Want: spec.Silence},
						spec.Row{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), Want: spec.Silence})
				},
			},
			{
				Name: "by way of the node that has it",
				Do: []spec.Action{
					RouteVia("client", "203.0.113.11", "2001:db8:113::11", "n1"),
					RouteVia("client", "198.51.100.11", "2001:db8:51::11", "n1"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
					{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a1"}},
					{From: "client", To: spec.AddrAt("198.51.100.11", "2001:db8:51::11", 80), Servers: []string{"a1"}},
				},
			},
		},
	}
}

// droppedOnTheWay wants n2 to drop what c1 sends to it.
func droppedOnTheWay(ctx context.Context, w spec.World) error {
	return noEndpointSees(ctx, w, []string{"a1", "a3"},
		spec.Row{From: "c1", To: spec.NodePortAt("n2", "web", 80), Times: 5, Want: spec.Silence})
}

// noEndpointSees wants the rows, which have one client, to lead none of its packets to an endpoint. One that got them
// would answer from an address that the client has not asked. A bridge may flood the packets of other scenarios to the
// endpoint's device, so only packets to the endpoint's own address count.
func noEndpointSees(ctx context.Context, w spec.World, endpoints []string, rows ...spec.Row) error {
	caught := spec.Try(CaptureRows(ctx, w, endpoints, rows...))
	client := spec.Must(w.Host(rows[0].From)).Addrs()
	for _, c := range caught {
		own := spec.Must(w.Host(c.Host)).Addrs()
		if slices.Contains(client, c.Src.Addr()) && slices.Contains(own, c.Dst.Addr()) && c.Dst.Port() == 8080 {
			return fmt.Errorf("a node without an endpoint leads the packets of %s to %s: %s", rows[0].From, c.Host, c.Packet)
		}
	}
	return nil
}

// clusterSemanticsInside has clients of the cluster on nodes with an endpoint, and on one without.
func clusterSemanticsInside() spec.Scenario {
	const eip4, eip6 = "198.51.100.64", "2001:db8:51::64"
	to := func(target spec.Target) []spec.Row {
		all := spec.Row{To: target, Servers: []string{"a1", "a2"}, Even: true}
		return FromEach(all, "c3", "n3", "c1", "n1")
	}
	return spec.Scenario{
		ID:    "etp-local-cluster-semantics-inside",
		Needs: []spec.Feature{spec.LoadBalancer, spec.ExternalIPs, spec.ETPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("web", LoadBalancer(), ExternalIPs(eip4, eip6), ETPLocal()),
		},
		Steps: []spec.Step{{
			Do:   []spec.Action{Ingress("web", "203.0.113.64", "2001:db8:113::64")},
			Rows: append(to(spec.IngressOf("web", 80)), to(spec.AddrAt(eip4, eip6, 80))...),
		}},
	}
}

// fromInside are the scenarios of pods and processes of nodes as clients.
func fromInside() []spec.Scenario {
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
					{From: "c3", To: spec.IngressOf("web", 80), Servers: []string{"a1", "a2"}, Even: true, SeenAs: spec.ClientAddr()},
				},
			}},
		},
		clusterSemanticsInside(),
		{
			ID: "etp-local-nodeport-own-node", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{
				Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Rows: append(
				FromEach(spec.Row{
					To: spec.NodePortAt("n3", "web", 80), Times: 5, Want: spec.Reply | spec.Silence, Servers: []string{"a1", "a2"},
					Choice: "from inside, a NodePort of policy Local at a node without an endpoint",
				}, "c3", "n3"),
				spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
			)}},
		},
		{
			ID: "etp-local-pod-to-other-node", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("a3", "n3"), Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Check: droppedOnTheWay}},
		},
		{
			ID:    "etp-local-pod-to-other-node-served",
			Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"),
				Service("web", NodePort(), ETPLocal()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.NodePortAt("n2", "web", 80), Times: 20, Servers: []string{"a2"}},
			}}},
		},
	}
}

// changes are the scenarios of policies and endpoints that change.
func changes() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "etp-local-toggle",
			Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort, spec.ETPLocal, spec.HealthCheckNodePort, spec.SourceAddress},
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "Local", Rows: append(underLocal, kept), Check: healthPortOpen},
				{Name: "Cluster", Do: []spec.Action{policy(corev1.ServiceExternalTrafficPolicyCluster)}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}, SeenAs: spec.ClientAddrOrNode()},
					{From: "client", To: spec.NodePortAt("n3", "web", 80), Servers: []string{"a1"}, SeenAs: spec.ClientAddrOrNode()},
					kept,
				}, Check: formerHealthPortClosed},
				{Name: "Local again", Do: []spec.Action{policy(corev1.ServiceExternalTrafficPolicyLocal)},
					Rows: append(underLocal, kept), Check: healthPortOpen},
			},
		},
		{
			ID: "etp-local-endpoint-moves", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{
				{Name: "a pod on n1", Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 5,
					Servers: []string{"a1"}}}},
				{Name: "it leaves", Do: []spec.Action{Delete("Pod", "a1")}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
					{From: "client", To: spec.NodePortAt("n2", "web", 80), Times: 5, Servers: []string{"a2"}},
				}},
				{Name: "another one comes", Do: []spec.Action{Apply(Backend("b1", "n1"))}, Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 5, Servers: []string{"b1"}},
				}},
			},
		},
	}
}

var (
	underLocal = []spec.Row{
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
		{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
	}
	// kept is a connection that lives through all changes.
	kept = spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "long", Servers: []string{"a1"}}
)

func policy(to corev1.ServiceExternalTrafficPolicy) spec.Action {
	return Edit("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = to })
}

// formerPort is where a Service keeps its health-check port in mind, for when it has none.
const formerPort = "viplab.example/former-health-port"

// healthPortOpen wants the health-check port to say that n1 alone has a pod.
func healthPortOpen(ctx context.Context, w spec.World) error {
	port := HealthPort(w, "web")
	spec.TryDo(saysAt(ctx, w, port, "/", codes{"n1": 200, "n3": 503}))
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
	return saysAt(ctx, w, port, "/", codes{"n1": 0})
}

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
		if healthy := healthyOver(ctx, w, family); !slices.Equal(healthy, want) {
			return fmt.Errorf("over %s the health-check port says that the nodes %v have a pod; it is %v", family, healthy, want)
		}
	}
	RouteTo(w, "router", lbIPv4, lbIPv6, want...)
	return w.Expect(ctx, spec.Row{
		From: "client", To: spec.IngressOf("web", 80), Times: 60, Servers: pods, SeenAs: spec.ClientAddr(),
		Flow: spec.UntrackedOn("n3"),
	})
}

// healthyOver are the nodes whose health-check port answers 200, asked from the router.
func healthyOver(ctx context.Context, w spec.World, family lab.Family) []string {
	port := HealthPort(w, "web")
	var healthy []string
	for _, n := range w.Lab().Nodes() {
		health := spec.Try(AskHealth(ctx, w, "router", "/", netip.AddrPortFrom(n.Addr(family), port)))
		if health.Code == http.StatusOK {
			healthy = append(healthy, n.Name())
		}
	}
	return healthy
}
