// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// lifecycle returns the scenarios of endpoints and Services that come, change and go.
func lifecycle() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "ep-add-remove", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"),
				Service("web", Port(80, 8080), UDPPort(80, 8080))},
			Steps: []spec.Step{
				{Name: "two endpoints", Rows: bothProtocols("a1", "a2")},
				{Name: "a third joins", Do: []spec.Action{Apply(both("a3", "n3"))}, Rows: bothProtocols("a1", "a2", "a3")},
				{Name: "the first leaves", Do: []spec.Action{Delete("Pod", "a1")}, Rows: bothProtocols("a2", "a3")},
			},
		},
		{
			ID: "ep-multiple-slices", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a1", "n1", TCP(8080), TCP(9090)), Pod("a2", "n2", TCP(8080)), Pod("a3", "n3", TCP(9090)),
				Service("web", Selecting(""), ServicePort("http", corev1.ProtocolTCP, 80, 8080),
					ServicePort("adm", corev1.ProtocolTCP, 81, 9090)),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Endpoints("http-1", "web", "http", 8080, "a1"), Endpoints("http-2", "web", "http", 8080, "a1", "a2"),
					Endpoints("adm-1", "web", "adm", 9090, "a1"), Endpoints("adm-2", "web", "adm", 9090, "a3"),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}, Port: 8080, Even: true},
					{From: "c1", To: spec.ClusterIPOf("web", 81), Servers: []string{"a1", "a3"}, Port: 9090, Even: true},
				},
			}},
		},
		{
			ID: "ep-manual-endpoints", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("h2", "n2", HostNetwork(), TCP(18080)),
				Service("api", Selecting(""), Port(443, 18080)), Service("outside", Selecting(""), Port(80, 18081)),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Serve("client", "tcp", 18081), Endpoints("api", "api", "", 18080, "n2"),
					Endpoints("outside", "outside", "", 18081, "client"),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("api", 443), Servers: []string{"h2"}},
					{From: "n1", To: spec.ClusterIPOf("api", 443), Servers: []string{"h2"}},
					{From: "n2", To: spec.ClusterIPOf("api", 443), Servers: []string{"h2"}},
					{From: "c1", To: spec.ClusterIPOf("outside", 80), Servers: []string{"client"}},
					{From: "n1", To: spec.ClusterIPOf("outside", 80), Servers: []string{"client"}},
				},
			}},
		},
		programmingLatency(),
		externalNameTransitions(),
		scaleToZeroAndBack(),
		notReadyExcluded(),
		publishNotReady(),
		terminatingCluster(),
		terminatingLocal(),
		conditionDefaults(),
		ipReuse(),
		eventOrder(),
		targetPortVariants(),
		deadBackend(),
		deleteRecreate(),
		longNames(),
		portsChange(),
		proxyNameLabel(),
	}
}

// both is a backend that serves TCP and UDP on 8080.
func both(name, node string) *corev1.Pod { return Backend(name, node, UDP(8080)) }

func bothProtocols(by ...string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: by, Even: true},
		{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: by, Even: true},
	}
}

func programmingLatency() spec.Scenario {
	return spec.Scenario{
		ID: "ep-programming-latency", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			for i := range 50 {
				RunActions(ctx, w, Readiness("a2", i%2 == 1))
			}
			// The last of the fifty made a2 ready; one more takes a1 away.
			RunActions(ctx, w, Readiness("a1", false))
			return w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 30, Servers: []string{"a2"}})
		}}},
	}
}

func externalNameTransitions() spec.Scenario {
	return spec.Scenario{
		ID: "svc-externalname-transitions", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{
			{Name: "ClusterIP, then ExternalName", Check: func(ctx context.Context, w spec.World) error {
				spec.TryDo(w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}}))
				former := ResolveLiteral(w, spec.ClusterIPOf("web", 80), "tcp")
				spec.MustDo(w.Apply(Service("web", ExternalName("example.org"))))
				return w.Expect(ctx, spec.Row{From: "c1", To: former, Want: spec.NotServed})
			}},
			{Name: "ClusterIP again", Do: []spec.Action{Apply(Service("web"))}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
			}},
			{Name: "ExternalName, then NodePort", Do: []spec.Action{
				Apply(Service("web", ExternalName("example.org"))), Apply(Service("web", NodePort())),
			}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
			}},
		},
	}
}

// draws is how many connections find an endpoint that must not be chosen, if it is one of two drawn with equal chances:
// the chance to miss it is 2^-22, below 1e-6.
const lifecycleDraws = 22

// scaleToZeroAndBack takes endpoints away by their readiness: their pods run on and would answer.
func scaleToZeroAndBack() spec.Scenario {
	return spec.Scenario{
		ID: "ep-scale-to-zero-and-back", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"), Service("web", Port(80, 8080), UDPPort(80, 8080), NodePort()),
		},
		Steps: []spec.Step{
			{Name: "two endpoints", Rows: everyWay(spec.Row{Servers: []string{"a1", "a2"}})},
			{Name: "none", Do: []spec.Action{Readiness("a1", false), Readiness("a2", false)},
				Rows: WantRefused(everyWay(spec.Row{})...)},
			{Name: "one again", Do: []spec.Action{Readiness("a2", true)}, Rows: everyWay(spec.Row{Servers: []string{"a2"},
				Times: 3})},
		},
	}
}

// everyWay is a row for each protocol and for the ClusterIP, from a pod and a node, and the NodePort.
func everyWay(r spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		r.Proto = proto
		r.From, r.To = "c1", spec.ClusterIPOf("web", 80)
		rows = append(rows, r)
		r.From = "n1"
		rows = append(rows, r)
		r.From, r.To = "client", spec.NodePortAt("n1", "web", 80)
		rows = append(rows, r)
	}
	return rows
}

func notReadyExcluded() spec.Scenario {
	return spec.Scenario{
		ID: "ep-not-ready-excluded", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"),
			Service("web", Port(80, 8080), UDPPort(80, 8080))},
		Steps: []spec.Step{
			{Name: "a1 is not ready", Do: []spec.Action{Readiness("a1", false)}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, Servers: []string{"a2"}},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Times: lifecycleDraws, Servers: []string{"a2"}},
			}},
			{Name: "none is", Do: []spec.Action{Readiness("a2", false)}, Rows: WantRefused(
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3},
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Times: 3},
			)},
		},
	}
}

func publishNotReady() spec.Scenario {
	return spec.Scenario{
		ID: "ep-publish-not-ready", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"),
			Service("web", PublishNotReady())},
		Steps: []spec.Step{
			{
				Name: "one ready, one not, one terminating", Do: []spec.Action{Readiness("a2", false), Terminate("a3", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2", "a3"}, Even: true}},
			},
			{
				// The others run on: relays would pass over pods that do not answer.
				Name: "the terminating one alone",
				Do:   []spec.Action{Apply(Backend("a1", "n1", App("other")), Backend("a2", "n2", App("other")))},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a3"}}},
			},
		},
	}
}

// terminatingCluster keeps all pods alive: those that must not be chosen would answer.
func terminatingCluster() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-terminating-fallback-cluster",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.TerminatingFallback},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web", LoadBalancer()),
		},
		Steps: []spec.Step{
			{
				Name: "a1 serves to its end, a2 does not, a3 is not ready",
				Do: []spec.Action{
					Ingress("web", "203.0.113.201", "2001:db8:113::201"), RouteVia("client", "203.0.113.201", "2001:db8:113::201",
						"n1"),
					Terminate("a1", true), Terminate("a2", false), Readiness("a3", false),
				},
				Rows: everyFrontend("a1"),
			},
			{Name: "a3 is ready", Do: []spec.Action{Readiness("a3", true)}, Rows: everyFrontend("a3")},
		},
	}
}

// everyFrontend wants all connections to every frontend of the Service served by one pod.
func everyFrontend(by string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, Servers: []string{by}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: lifecycleDraws, Servers: []string{by}},
		{From: "client", To: spec.IngressOf("web", 80), Times: lifecycleDraws, Servers: []string{by}},
	}
}

func terminatingLocal() spec.Scenario {
	return spec.Scenario{
		ID:    "ep-terminating-fallback-local",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.ITPLocal, spec.TerminatingFallback},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("c2", "n2"), Pod("c3", "n3"), Backend("a1", "n1"), Backend("a2", "n2"),
			Service("web", NodePort(), ETPLocal(), ITPLocal()),
		},
		Steps: []spec.Step{
			{Name: "a1 terminates and serves", Do: []spec.Action{Terminate("a1", true)},
				Rows: append(onItsNode("n1", "c1", "a1"), append(
					onItsNode("n2", "c2", "a2"),
					spec.Row{From: "client", To: spec.NodePortAt("n3", "web", 80), Want: spec.Silence},
					spec.Row{From: "c3", To: spec.ClusterIPOf("web", 80), Want: DropOrReject},
				)...)},
			{
				Name: "a ready one joins a1's node", Do: []spec.Action{Apply(Backend("b1", "n1"))},
				Rows: onItsNode("n1", "c1", "b1"),
			},
			{Name: "a1 and b1 no longer serve", Do: []spec.Action{Readiness("b1", false), Terminate("a1", false)},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Silence},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Want: DropOrReject},
				}},
		},
	}
}

func onItsNode(node, client, by string) []spec.Row {
	return []spec.Row{
		{From: "client", To: spec.NodePortAt(node, "web", 80), Times: lifecycleDraws, Servers: []string{by}},
		{From: client, To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, Servers: []string{by}},
	}
}
