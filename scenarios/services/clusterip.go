// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// clusterip returns the scenarios of ClusterIPs: a virtual address that every node translates to one of the pods behind
// it.
func clusterip() []spec.Scenario {
	return slices.Concat(clusteripServed(), edges())
}

func clusteripServed() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "clusterip-pod-to-remote-pod", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
			Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, SeenAs: spec.ClientAddr(),
					Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID: "clusterip-pod-to-local-pod", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"b1"}, SeenAs: spec.ClientAddr()},
			}}},
		},
		{
			ID: "clusterip-host-process", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		{
			ID: "clusterip-every-node", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Pod("a2", "n2"), Pod("a3", "n3"), Backend("b2", "n2"), Service("web")},
			Steps: []spec.Step{{
				Rows: FromEach(spec.Row{To: spec.ClusterIPOf("web", 80), Servers: []string{"b2"}},
					"a1", "a2", "a3", "n1", "n2", "n3"),
			}},
		},
		{
			ID: "clusterip-target-port-rewrite", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web", Port(80, 8080))},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "a1", To: spec.ClusterIPRaw("web", 8080), Want: spec.NotServed},
			}}},
		},
		clusteripOneConnectionOneEndpoint(),
		clusteripMultiport(),
		{
			ID: "clusterip-same-port-tcp-udp", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("a1", "n1"), Pod("a2", "n2", App("web"), TCP(8080), UDP(8081)),
				Service("web", Port(80, 8080), UDPPort(80, 8081)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "a1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: []string{"a2"}, Port: 8081},
			}}},
		},
		{
			ID: "clusterip-external-unrouted", HoldsWithoutProxier: true, Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Backend("a1", "n1"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
			}}},
		},
		spread(),
		replyFromVIP(),
		isVirtual(),
	}
}

func clusteripOneConnectionOneEndpoint() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-one-connection-one-endpoint", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("a1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{
			{Name: "one endpoint", Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", Servers: []string{"a2"}},
			}},
			{Name: "two more", Do: []spec.Action{Apply(Backend("a3", "n3"), Backend("b1", "n1"))}, Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", Servers: []string{"a2"}},
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2", "a3", "b1"}, Even: true},
			}},
			{Name: "its own turns unready", Do: []spec.Action{Readiness("a2", false)}, Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Conn: "long", Servers: []string{"a2"}},
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 20, Servers: []string{"a3", "b1"}},
			}},
		},
	}
}

func clusteripMultiport() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-multiport", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("a1", "n1"), Pod("a2", "n2", App("web"), Named("http", 8080), Named("adm", 9090)),
			Service("web", ServicePort("http", corev1.ProtocolTCP, 80, 8080), ServicePort("adm", corev1.ProtocolTCP, 81, 9090)),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, Port: 8080},
			{From: "a1", To: spec.ClusterIPOf("web", 81), Servers: []string{"a2"}, Port: 9090},
		}}},
	}
}

// edges are the scenarios of uncommon clients, pods and sizes, and of what is no Service.
func edges() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "clusterip-external-routed", Needs: []spec.Feature{spec.ClusterIP, spec.ClusterIPFromOutside},
			Given: []store.Object{Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{
				Do: []spec.Action{RouteService("client", "web", "n1")},
				Rows: []spec.Row{
					{From: "client", To: spec.ClusterIPOf("web", 80), Times: 10, Servers: []string{"b1", "a2"}, Port: 8080,
						SeenAs: spec.ClientAddrOrNode()},
				},
			}},
		},
		{
			ID: "clusterip-wrong-port-or-proto", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2", UDP(8080), TCP(9090)), Service("web"),
				Service("other", Selecting("web"), Port(81, 9090)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, Port: 8080},
				{From: "c1", To: spec.ClusterIPOf("other", 81), Servers: []string{"a2"}, Port: 9090},
				{From: "c1", To: spec.ClusterIPRaw("web", 80), Proto: "udp", Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
				{From: "c1", To: spec.ClusterIPRaw("other", 80), Want: spec.NotServed},
				{From: "n1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
			}}},
		},
		{
			ID: "clusterip-hostnetwork-endpoint", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("h1", "n1", HostNetwork(), App("near"), TCP(18083)),
				Pod("h2", "n2", HostNetwork(), App("far"), TCP(18083)),
				Service("near", Port(80, 18083)), Service("far", Port(80, 18083)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), Servers: []string{"h1"}},
				{From: "c1", To: spec.ClusterIPOf("far", 80), Servers: []string{"h2"}},
				{From: "n1", To: spec.ClusterIPOf("near", 80), Servers: []string{"h1"}},
				{From: "n1", To: spec.ClusterIPOf("far", 80), Servers: []string{"h2"}},
				{From: "n3", To: spec.ClusterIPOf("near", 80), Servers: []string{"h1"}},
			}}},
		},
		{
			ID: "clusterip-large-payload", Needs: []spec.Feature{spec.ClusterIP},
			Given: NearAndFar(),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), Payload: 2 << 20, Servers: []string{"b1"}},
				{From: "c1", To: spec.ClusterIPOf("far", 80), Payload: 2 << 20, Servers: []string{"a2"}},
			}}},
		},
		{
			ID: "clusterip-masquerade-all", Cluster: Configured(),
			Needs: []spec.Feature{spec.ClusterIP, spec.MasqueradeAll},
			Given: NearAndFar(),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("near", 80), Servers: []string{"b1"}, SeenAs: spec.NodeAddr("n1")},
				{From: "c1", To: spec.ClusterIPOf("far", 80), Servers: []string{"a2"}, SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		unallocated(),
		echo(),
	}
}

// spread lets Services over 1, 2, 3 and 7 of the same seven pods be judged by an exact test each.
func spread() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-spread", Needs: []spec.Feature{spec.ClusterIP},
		Given: spreadGiven(),
		Steps: []spec.Step{{Rows: spreadRows()}},
	}
}

var spreadSizes = []int{1, 2, 3, 7}

// spreadPods names the pods b1 to b7; the first runs on the client's node.
func spreadPods(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("b%d", i+1))
	}
	return names
}

func spreadGiven() []store.Object {
	objects := []store.Object{Pod("a1", "n1")}
	for i, name := range spreadPods(7) {
		objects = append(objects, Pod(name, fmt.Sprintf("n%d", i%3+1), TCP(8080), func(p *corev1.Pod) {
			for _, n := range spreadSizes {
				if i < n {
					p.Labels[fmt.Sprintf("among-%d", n)] = "yes"
				}
			}
		}))
	}
	for _, n := range spreadSizes {
		objects = append(objects, Service(fmt.Sprintf("of-%d", n), func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{fmt.Sprintf("among-%d", n): "yes"}
		}))
	}
	return objects
}

func spreadRows() []spec.Row {
	var rows []spec.Row
	for _, n := range spreadSizes {
		rows = append(rows, spec.Row{
			From: "a1", To: spec.ClusterIPOf(fmt.Sprintf("of-%d", n), 80),
			Times: 100 * n, Servers: spreadPods(n), Even: true,
		})
	}
	return rows
}

func isVirtual() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-is-virtual", HoldsWithoutProxier: true, Needs: []spec.Feature{spec.ClusterIP, spec.VirtualIP},
		Given: []store.Object{Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{{Check: EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
			vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
			for _, n := range w.Lab().Nodes() {
				if slices.Contains(spec.Must(n.LocalAddrs()), vip.Addr()) {
					return fmt.Errorf("an interface of %s owns %s", n.Name(), vip.Addr())
				}
			}
			return NobodyAnswersFor(ctx, w, vip.Addr())
		})}},
	}
}

func replyFromVIP() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-reply-from-vip", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			caught := spec.Try(CaptureRows(ctx, w, []string{"a1"},
				spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 20, Servers: []string{"b1", "a2"}}))
			for _, family := range w.Lab().Stack().Families() {
				vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
				answers := 0
				for _, c := range caught {
					if c.Proto != "tcp" || c.Direction != observe.In || c.Dst.Addr().Is4() != vip.Addr().Is4() {
						continue
					}
					if c.Src != vip {
						return fmt.Errorf("the client got a packet that does not come from %s: %s", vip, c.Packet)
					}
					answers++
				}
				if answers < 40 {
					return spec.HarnessErrorf("the capture holds %d packets from %s: fewer than two for each connection", answers, vip)
				}
			}
			return nil
		}}},
	}
}
