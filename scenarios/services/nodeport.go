// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nodeport returns the scenarios of NodePorts: the same port on every node, for clients outside the cluster.
func nodeport() []spec.Scenario {
	return slices.Concat(nodeportServed(), clients(), changes())
}

func nodeportServed() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "nodeport-node-with-endpoint", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}, Port: 8080,
					SeenAs: spec.ClientAddrOrNode()},
			}}},
		},
		{
			ID: "nodeport-node-without-endpoint", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}, SeenAs: spec.ClientAddrOrNode(),
					Flow: spec.MasqueradedOn("n1")},
			}}},
		},
		{
			ID: "nodeport-every-node", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n2", "web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n3", "web", 80), Servers: []string{"a2"}},
			}}},
		},
		{
			ID: "nodeport-any-local-address", Needs: []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Secondary), Servers: []string{"a2"}},
			}}},
		},
		{
			ID: "nodeport-has-clusterip", Needs: []spec.Feature{spec.NodePort, spec.ClusterIP},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("b2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Servers: []string{"b1", "b2"}, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"b1", "b2"}, Even: true},
			}}},
		},
		{
			ID: "nodeport-localhost", Needs: []spec.Feature{spec.NodePort, spec.NodePortLocalhost},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Loopback), Family: lab.V4, Servers: []string{"a2"},
					SeenAs: spec.NodeAddr("n1")},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Loopback), Family: lab.V6,
					Want: spec.Refused | spec.Reply, Servers: []string{"a2"}, Choice: "a NodePort on ::1"},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
			}}},
		},
		{
			ID: "nodeport-forward-policy-drop", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.NodePort, spec.OpensFirewall},
			Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{
				Name: "FORWARD drops", Do: []spec.Action{ForwardPolicy("n1", "DROP")},
				Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}}},
			}},
		},
		singleNATHop(),
		allocationRules(),
	}
}

// changes are the scenarios of addresses and ports that are chosen, come and go.
func changes() []spec.Scenario {
	return []spec.Scenario{
		lateListedAddress(),
		onPrimary(),
		oneFamily(),
		secondUplink(),
		{
			ID: "nodeport-address-filter", Cluster: OnPrimaryAddresses(),
			Needs: []spec.Feature{spec.NodePort, spec.NodePortAddresses},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n3", "web", 80), Servers: []string{"a2"}},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Secondary), Want: spec.Refused},
				{From: "c1", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Secondary), Want: spec.Refused},
				{From: "n1", To: spec.NodePortAt("n1", "web", 80).AtAddr(spec.Secondary), Want: spec.Refused},
			}}},
		},
		{
			ID: "nodeport-update", NodePorts: []uint16{30042, 30043}, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)), nodeportAt("web", 30042)},
			Steps: []spec.Step{
				{Name: "30042", Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30042), Servers: []string{"a2"}},
					{From: "client", To: spec.HostAt("n1", 30043), Want: spec.Refused},
				}},
				{Name: "30043", Do: []spec.Action{Edit("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30043 })},
					Rows: []spec.Row{
						{From: "client", To: spec.HostAt("n1", 30043), Servers: []string{"a2"}},
						{From: "client", To: spec.HostAt("n1", 30042), Want: spec.Refused},
						{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", Want: spec.Refused},
					}},
				{Name: "UDP too", Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					UDPPort(80, 8081)(s)
					s.Spec.Ports[1].NodePort = 30043
				})}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30043), Servers: []string{"a2"}, Port: 8080},
					{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", Servers: []string{"a2"}, Port: 8081},
				}},
				{Name: "none", Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
					for i := range s.Spec.Ports {
						s.Spec.Ports[i].NodePort = 0
					}
				})}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30043), Want: spec.Refused},
					{From: "client", To: spec.HostAt("n1", 30043), Proto: "udp", Want: spec.Refused},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
				}},
			},
		},
		{
			ID: "nodeport-late-address", NodePorts: []uint16{30044, 30045},
			Needs: []spec.Feature{spec.NodePort, spec.NodePortAnyLocalAddress},
			Given: []store.Object{Backend("a2", "n2"), nodeportAt("web", 30044)},
			Steps: []spec.Step{
				{Name: "before", Do: []spec.Action{RouteVia("client", "198.51.100.63", "2001:db8:51::63", "n1")}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30044), Servers: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30044), Want: spec.NotServed},
				}},
				{Name: "the address is there, and a change makes proxiers sync", Do: []spec.Action{
					AddAddress("n1", "198.51.100.63", "2001:db8:51::63"), Apply(nodeportAt("other", 30045)),
				}, Rows: []spec.Row{
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30044), Servers: []string{"a2"}},
					{From: "client", To: spec.AddrAt("198.51.100.63", "2001:db8:51::63", 30045), Servers: []string{"a2"}},
				}},
			},
		},
	}
}

// clients are the scenarios of clients inside the cluster, and of what is no NodePort.
func clients() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "nodeport-from-pod", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.NodePortAt("n1", "web", 80), Times: 10, Servers: []string{"b1", "a2"}, Port: 8080,
					SeenAs: spec.ClientAddrOrNode()},
			}}},
		},
		{
			ID: "nodeport-from-host", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), Times: 10, Servers: []string{"b1", "a2"}, Port: 8080,
					SeenAs: spec.ClientAddrOrNode()},
			}}},
		},
		{
			ID: "nodeport-remote-node-not-captured", Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a3", "n3"), Service("web", NodePort())},
			Steps: []spec.Step{{
				Rows:  []spec.Row{toAnotherNode()},
				Check: EachFamily(passedAsItIs),
			}},
		},
		{
			ID: "nodeport-egress-not-hijacked", NodePorts: []uint16{30040}, Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), nodeportAt("web", 30040)},
			Steps: []spec.Step{{
				Do: []spec.Action{Serve("client", "tcp", 30040)},
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
					{From: "c1", To: spec.HostAt("client", 30040), Servers: []string{"client"}, Port: 30040},
					{From: "n1", To: spec.HostAt("client", 30040), Servers: []string{"client"}, Port: 30040},
				},
			}},
		},
		{
			ID: "nodeport-wrong-pairing", NodePorts: []uint16{30041}, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), nodeportAt("web", 30041)},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "c1", To: spec.ClusterIPRaw("web", 30041), Want: spec.NotServed},
				{From: "n1", To: spec.ClusterIPRaw("web", 30041), Want: spec.NotServed},
				{From: "client", To: spec.HostAt("n1", 80), Want: spec.Refused},
				{From: "c1", To: spec.HostAt("n1", 80), Want: spec.Refused},
				{From: "client", To: spec.HostAt("n1", 30041), Proto: "udp", Want: spec.Refused},
				{From: "c1", To: spec.HostAt("n1", 30041), Proto: "udp", Want: spec.Refused},
			}}},
		},
	}
}

// nodeportAt is a NodePort Service that chooses its nodePort, from the part of the range that is left to people.
func nodeportAt(name string, nodePort int32) *corev1.Service {
	return Service(name, Selecting("web"), NodePort(), NodePorts(nodePort))
}

// toAnotherNode is a connection from n1 to a NodePort of n2.
func toAnotherNode() spec.Row {
	return spec.Row{From: "c1", To: spec.NodePortAt("n2", "web", 80), SourcePort: 61521, Servers: []string{"a3"},
		SeenAs: spec.ClientAddrOrNode(), Flow: spec.MasqueradedOn("n2")}
}

// passedAsItIs wants n1 to have left the connection to n2 alone.
func passedAsItIs(_ context.Context, w spec.World, family lab.Family) error {
	flow, tracked := FlowOf(w, "n1", toAnotherNode(), family)
	if tracked && flow.Reply.Src != flow.Orig.Dst {
		return fmt.Errorf("n1 translates what goes to n2: %s", flow)
	}
	return nil
}

func singleNATHop() spec.Scenario {
	return spec.Scenario{
		ID: "nodeport-single-nat-hop", Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			caught := spec.Try(CaptureRows(ctx, w, []string{"n1", "n2"}, spec.Row{
				From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}, Flow: spec.MasqueradedOn("n1"),
			}))
			for _, family := range w.Lab().Stack().Families() {
				vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
				nodePort := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp"))
				arrived := false
				for _, c := range caught {
					p := c.Innermost()
					if p.Src.Addr() == vip.Addr() || p.Dst.Addr() == vip.Addr() {
						return fmt.Errorf("a packet on %s carries the ClusterIP: %s", c.Host, c.Packet)
					}
					arrived = arrived || c.Dst == nodePort
				}
				if !arrived {
					return spec.HarnessErrorf("the capture holds no packet to %s", nodePort)
				}
			}
			return nil
		}}},
	}
}

// allocationRules is about the control plane alone. The port that it chooses is from the part of the range that is
// given to no other Service.
func allocationRules() spec.Scenario {
	return spec.Scenario{
		ID: "nodeport-allocation-rules", NodePorts: []uint16{30058}, HoldsWithoutProxier: true,
		Steps: []spec.Step{{Check: func(_ context.Context, w spec.World) error {
			var errs []error
			wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
			if err := w.Apply(nodeportAt("given", 0)); err != nil {
				wrong("a Service that asks for no nodePort is refused: %w", err)
			} else if p := nodePortOf(w, "given"); p < 30000 || p > 32767 {
				wrong("a Service that asks for no nodePort gets %d, outside of 30000-32767", p)
			}
			if err := w.Apply(nodeportAt("chosen", 30058)); err != nil {
				wrong("the free nodePort 30058 is refused: %w", err)
			} else if p := nodePortOf(w, "chosen"); p != 30058 {
				wrong("a Service that asks for nodePort 30058 gets %d", p)
			}
			for _, port := range []int32{29999, 32768} {
				if w.Apply(nodeportAt("outside", port)) == nil {
					wrong("nodePort %d, outside of the range, is given", port)
				}
			}
			if w.Apply(nodeportAt("second", 30058)) == nil {
				wrong("nodePort 30058 is given twice")
			}
			if err := w.Store().Delete("Service", w.Namespace(), "chosen"); err != nil {
				wrong("delete the Service: %w", err)
			}
			if err := w.Apply(nodeportAt("second", 30058)); err != nil {
				wrong("nodePort 30058 is refused although its Service is gone: %w", err)
			}
			return errors.Join(errs...)
		}}},
	}
}

func nodePortOf(w spec.World, service string) int32 {
	s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), service)
	if !ok {
		return 0
	}
	return s.Spec.Ports[0].NodePort
}
