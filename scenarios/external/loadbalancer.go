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

// loadbalancer returns the scenarios of Services of type LoadBalancer: an address that a load balancer has given to the
// Service, and that nodes serve themselves if its packets reach them unchanged.
func loadbalancer() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "lb-vip-any-node", Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer())},
			Steps: []spec.Step{
				{Name: "by n1", Do: []spec.Action{
					AddAddress("n2", owned4, owned6),
					IngressIPs("web", corev1.LoadBalancerIPModeVIP, nobodys4, nobodys6, owned4, owned6),
					RouteVia("client", nobodys4, nobodys6, "n1"), RouteVia("client", owned4, owned6, "n1"),
				}, Rows: anyNodeRows()},
				{Name: "by n2, which has one of the addresses", Do: []spec.Action{
					RouteVia("client", nobodys4, nobodys6, "n2"), RouteVia("client", owned4, owned6, "n2"),
				}, Rows: anyNodeRows()},
				{Name: "by n3", Do: []spec.Action{
					RouteVia("client", nobodys4, nobodys6, "n3"), RouteVia("client", owned4, owned6, "n3"),
				}, Rows: anyNodeRows()},
			},
		},
		{
			ID: "lb-ipmode-proxy", Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort, spec.IPMode},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{
					IngressIPs("web", corev1.LoadBalancerIPModeProxy, "203.0.113.24", "2001:db8:113::24"),
					AddAddress("router", "203.0.113.24", "2001:db8:113::24"), Serve("router", "tcp", 80),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.IngressOf("web", 80), Servers: []string{"router"}, Port: 80},
					{From: "n1", To: spec.IngressOf("web", 80), Servers: []string{"router"}, Port: 80},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				},
			}},
		},
		{
			ID: "lb-without-nodeports", Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Backend("a2", "n2"), Service("web", LoadBalancer(), withoutNodePorts)},
			Steps: []spec.Step{{
				Do: IngressViaN1("web", "203.0.113.25", "2001:db8:113::25"),
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a2"}, Port: 8080},
				},
				Check: func(_ context.Context, w spec.World) error {
					if s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), "web"); !ok || s.Spec.Ports[0].NodePort != 0 {
						return spec.HarnessErrorf("the Service has a nodePort")
					}
					return nil
				},
			}, {
				Name: "NodePorts are allocated after all",
				Do:   []spec.Action{Edit("web", func(s *corev1.Service) { *s.Spec.AllocateLoadBalancerNodePorts = true })},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a2"}},
				},
			}},
		},
		{
			ID: "lb-no-announcement", Needs: []spec.Feature{spec.LoadBalancer, spec.VirtualIP},
			Given: []store.Object{Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do:    IngressViaN1("web", "203.0.113.30", "2001:db8:113::30"),
				Rows:  []spec.Row{{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a2"}}},
				Check: nobodyAnswers,
			}},
		},
		statusChanges(),
		rollingUpdate(),
	}
}

// shortcuts returns the scenarios of packets that take no way through the load balancer, and of one that does.
func shortcuts() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "lb-vip-from-external", Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: IngressViaN1("web", "203.0.113.27", "2001:db8:113::27"),
				Check: func(ctx context.Context, w spec.World) error {
					return awayFromRouter(ctx, w, spec.Row{
						From: "client", To: spec.IngressOf("web", 80), Times: 10, Servers: []string{"a1", "a2"}, Port: 8080,
						SeenAs: spec.ClientAddrOrNode(),
					})
				},
			}},
		},
		{
			ID: "lb-vip-shortcut-in-cluster", Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.28", "2001:db8:113::28")},
				Check: func(ctx context.Context, w spec.World) error {
					return awayFromRouter(ctx, w,
						spec.Row{From: "c1", To: spec.IngressOf("web", 80), Servers: []string{"a2"},
							SeenAs: spec.ClientAddrOrNode()},
						spec.Row{From: "n1", To: spec.IngressOf("web", 80), Servers: []string{"a2"},
							SeenAs: spec.ClientAddrOrNode()},
					)
				},
			}},
		},
		{
			ID: "lb-foreign-port-untouched", Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Ingress("web", "203.0.113.26", "2001:db8:113::26"),
					RouteVia("client", "203.0.113.26", "2001:db8:113::26", "n1"),
					AddAddress("router", "203.0.113.26", "2001:db8:113::26"), Serve("router", "tcp", 8026),
					Serve("router", "udp", 8026),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Servers: []string{"a2"}},
					{From: "c1", To: spec.IngressOf("web", 8026), Servers: []string{"router"}},
					{From: "n1", To: spec.IngressOf("web", 8026), Servers: []string{"router"}},
					// The answer does not come back through the node, which TCP would not survive there.
					{From: "client", To: spec.IngressOf("web", 8026), Proto: "udp", Servers: []string{"router"}},
				},
			}},
		},
	}
}

// No host has the first address of lb-vip-any-node; a node has the second.
const (
	nobodys4, nobodys6 = "203.0.113.22", "2001:db8:113::22"
	owned4, owned6     = "203.0.113.23", "2001:db8:113::23"
)

func anyNodeRows() []spec.Row {
	return []spec.Row{
		{From: "client", To: spec.AddrAt(nobodys4, nobodys6, 80), Servers: []string{"a1"}, Port: 8080},
		{From: "client", To: spec.AddrAt(owned4, owned6, 80), Servers: []string{"a1"}, Port: 8080},
	}
}

func withoutNodePorts(s *corev1.Service) {
	no := false
	s.Spec.AllocateLoadBalancerNodePorts = &no
}

// nobodyAnswers asks the network who has the address of the load balancer.
func nobodyAnswers(ctx context.Context, w spec.World) error {
	for _, f := range w.Lab().Stack().Families() {
		spec.TryDo(NobodyAnswersFor(ctx, w, spec.Must(w.Resolve(spec.IngressOf("web", 80), f, "tcp")).Addr()))
	}
	return nil
}

// awayFromRouter wants the rows to hold, and no packet of theirs to pass the router, where the load balancer would be.
func awayFromRouter(ctx context.Context, w spec.World, rows ...spec.Row) error {
	caught := spec.Try(CaptureRows(ctx, w, []string{"router"}, rows...))
	for _, f := range w.Lab().Stack().Families() {
		vip := spec.Must(w.Resolve(rows[0].To, f, "tcp"))
		for _, c := range caught {
			if c.Src == vip || c.Dst == vip {
				return fmt.Errorf("the router, where the load balancer would be, saw %s", c.Packet)
			}
		}
	}
	return nil
}

// The addresses that statusChanges gives and takes.
var (
	first  = spec.AddrAt("203.0.113.31", "2001:db8:113::31", 80)
	second = spec.AddrAt("203.0.113.32", "2001:db8:113::32", 80)
	third  = spec.AddrAt("203.0.113.33", "2001:db8:113::33", 80)
)

func statusChanges() spec.Scenario {
	return spec.Scenario{
		ID: "lb-status-changes", Needs: []spec.Feature{spec.LoadBalancer},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)), Service("web", LoadBalancer(), Port(80, 8080), UDPPort(80, 8081)),
		},
		Steps: []spec.Step{
			{
				Name: "two addresses",
				Do:   append([]spec.Action{has(first, second)}, routed(first, second, third)...),
				Rows: append(answers(first, "tcp", "udp"), append(answers(second, "tcp", "udp"), silent(third)...)...),
			},
			{
				Name: "one is replaced",
				Do:   []spec.Action{has(first, third)},
				Rows: append(answers(first, "tcp", "udp"), append(answers(third, "tcp", "udp"), silent(second)...)...),
			},
			{
				Name: "the Service becomes internal",
				Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					s.Spec.Type = corev1.ServiceTypeClusterIP
					s.Spec.ExternalTrafficPolicy = ""
					s.Spec.AllocateLoadBalancerNodePorts = nil
					for i := range s.Spec.Ports {
						s.Spec.Ports[i].NodePort = 0
					}
				})},
				Rows: append([]spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}},
					append(silent(first), append(silent(second), silent(third)...)...)...),
			},
		},
	}
}

func has(ips ...spec.Target) spec.Action { return hasFor("web", ips...) }

// hasFor gives a Service the addresses of targets.
func hasFor(service string, ips ...spec.Target) spec.Action {
	var texts []string
	for _, ip := range ips {
		texts = append(texts, ip.V4, ip.V6)
	}
	return IngressIPs(service, corev1.LoadBalancerIPModeVIP, texts...)
}

func routed(ips ...spec.Target) []spec.Action {
	var out []spec.Action
	for _, ip := range ips {
		out = append(out, RouteVia("client", ip.V4, ip.V6, "n1"))
	}
	return out
}

func answers(at spec.Target, protos ...string) []spec.Row {
	var rows []spec.Row
	for _, proto := range protos {
		port := map[string]uint16{"tcp": 8080, "udp": 8081}[proto]
		rows = append(rows,
			spec.Row{From: "client", To: at, Proto: proto, Servers: []string{"a2"}, Port: port},
			spec.Row{From: "c1", To: at, Proto: proto, Servers: []string{"a2"}, Port: port})
	}
	return rows
}

func silent(at spec.Target) []spec.Row {
	return []spec.Row{
		{From: "client", To: at, Want: spec.NotServed}, {From: "client", To: at, Proto: "udp", Want: spec.NotServed},
		{From: "c1", To: at, Want: spec.NotServed},
	}
}

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
		Waits: true,
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
	spec.TryDo(w.Settle(ctx))
	rows := []spec.Row{{From: "client", To: spec.IngressOf("any", 80), Servers: everyPod}}
	for node, door := range doors {
		for _, f := range w.Lab().Stack().Families() {
			at := netip.AddrPortFrom(w.Lab().Node(node).Addr(f), HealthPort(w, "local"))
			if spec.Try(AskHealth(ctx, w, "client", "/", at)).Code == http.StatusOK {
				rows = append(rows, spec.Row{From: "client", To: door, Family: f, Servers: everyPod})
			}
		}
	}
	return w.During(ctx, rows, func(ctx context.Context, t spec.Traffic) error {
		RunActions(ctx, w, change)
		spec.TryDo(w.Settle(ctx))
		return t.Rounds(ctx, 5)
	})
}
