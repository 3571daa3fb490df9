// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// portbinding returns the scenarios of NodePorts and the sockets of other processes.
func portbinding() []spec.Scenario {
	return append([]spec.Scenario{holdsNodePort(), hostPorts()}, listeners()...)
}

const heldPort = 30034

func holdsNodePort() spec.Scenario {
	return spec.Scenario{
		ID: "pb-proxier-holds-nodeport", NodePorts: []uint16{heldPort},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.Relays},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), held, Service("other", Selecting("web"), NodePort()),
		},
		Steps: []spec.Step{
			{
				Name: "the proxier came first",
				Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}}},
				Check: func(_ context.Context, w spec.World) error {
					var errs []error
					for _, proto := range []string{"tcp", "udp"} {
						if err := w.Serve("n1", proto, heldPort); !errors.Is(err, unix.EADDRINUSE) {
							errs = append(errs, fmt.Errorf("another process binds %s port %d of n1, and gets %v, not: %w", proto, heldPort,
								err, unix.EADDRINUSE))
						}
					}
					return errors.Join(errs...)
				},
			},
			{
				Name: "the Service is gone",
				Do: []spec.Action{Delete("Service", "web"), {Name: "settle",
					Run: func(ctx context.Context, w spec.World) error { return w.Settle(ctx) }}, Serve("n1", "tcp", heldPort)},
				Rows: []spec.Row{{From: "client", To: spec.HostAt("n1", heldPort), Servers: []string{"n1"}}},
			},
			{
				Name: "another process came first",
				Do:   []spec.Action{Apply(held)},
				Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", heldPort), Servers: []string{"n1"}},
					{From: "client", To: spec.HostAt("n1", heldPort), Proto: "udp", Servers: []string{"a2"}},
					{From: "client", To: spec.NodePortAt("n2", "web", 80), Servers: []string{"a2"}},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.NodePortAt("n1", "other", 80), Servers: []string{"a2"}},
				},
			},
		},
	}
}

// held has the same NodePort for TCP and for UDP.
var held = Service("web", NodePort(), Port(80, 8080), UDPPort(80, 8080), func(s *corev1.Service) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = heldPort
	}
})

// listeners are the scenarios of processes that listen where a NodePort is.
func listeners() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "pb-nodeport-beats-listener", NodePorts: []uint16{30046},
			Needs: []spec.Feature{spec.NodePort, spec.InKernel},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2")},
			Steps: []spec.Step{
				{Name: "a process", Do: []spec.Action{Serve("n1", "tcp", 30046)}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30046), Servers: []string{"n1"}},
				}},
				{Name: "a Service too", Do: []spec.Action{Apply(nodeportAt("web", 30046))}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30046), Times: 3, Servers: []string{"a2"}},
					{From: "c1", To: spec.HostAt("n1", 30046), Times: 3, Servers: []string{"a2"}},
					{From: "n1", To: spec.HostAt("n1", 30046), Times: 3, Servers: []string{"a2"}},
				}},
			},
		},
		{
			ID: "pb-proxier-dead-listener", NodePorts: []uint16{30048}, Cluster: &spec.ClusterConfig{Nodes: []string{"n1",
				"n2"}},
			Needs: []spec.Feature{spec.NodePort, spec.InKernel},
			Given: []store.Object{Backend("a2", "n2"), nodeportAt("web", 30048)},
			Steps: []spec.Step{
				{Name: "the proxier runs", Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), Servers: []string{"a2"}},
				}},
				{Name: "it was killed, and the port is another process's", Do: []spec.Action{
					{Name: "kill the proxier of n1", Run: func(ctx context.Context,
						w spec.World) error {
						return w.ProxierControl("n1").Kill(ctx)
					}},
					Serve("n1", "tcp", 30048),
				}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), Times: 3, Servers: []string{"a2"}},
				}},
				{Name: "a pod joins", Do: []spec.Action{Apply(Backend("a3", "n3"))}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), Times: 25, Servers: []string{"a2"}},
					{From: "client", To: spec.HostAt("n2", 30048), Servers: []string{"a2", "a3"}, Even: true},
				}},
			},
		},
		{
			ID: "pb-listener-gets-port-back", NodePorts: []uint16{30049}, Cluster: OnPrimaryAddresses(),
			Needs: []spec.Feature{spec.NodePort, spec.NodePortAddresses, spec.InKernel},
			Given: []store.Object{Backend("a2", "n2"), nodeportAt("web", 30049)},
			Steps: []spec.Step{
				{Name: "a process and a Service", Do: []spec.Action{Serve("n1", "tcp", 30049), Serve("n1", "udp", 30049)},
					Rows: []spec.Row{
						{From: "client", To: spec.HostAt("n1", 30049), Servers: []string{"a2"}},
						{From: "client", To: spec.HostAt("n1", 30049), Proto: "udp", Servers: []string{"n1"}},
						{From: "client", To: spec.HostAt("n1", 30049).AtAddr(spec.Secondary), Servers: []string{"n1"}},
					}},
				{Name: "the Service is gone", Do: []spec.Action{Delete("Service", "web")}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30049), Servers: []string{"n1"}},
				}},
			},
		},
	}
}

// hostPort is the port that three pods have on the same node.
const hostPort = 30050

// hostPorts has a cluster of its own, for its rules.
func hostPorts() spec.Scenario {
	return spec.Scenario{
		ID: "pb-hostport-coexistence", NodePorts: []uint16{hostPort, 30051},
		Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs:   []spec.Feature{spec.NodePort},
		Given: []store.Object{
			Pod("p1", "n1", TCP(8080)), Pod("p2", "n1", TCP(8080)), Pod("p3", "n1", UDP(8080)), Backend("a2", "n2"),
			nodeportAt("web", 30051),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Portmap("n1"), MapPort(spec.HostAt("n1", hostPort), "tcp", "p1"),
				MapPort(spec.HostAt("n1", hostPort).AtAddr(spec.Secondary), "tcp", "p2"),
				MapPort(spec.HostAt("n1", hostPort), "udp", "p3"),
				Apply(Service("later", Selecting("web"), NodePort())), // which makes proxiers sync after the plugin
			},
			Rows: []spec.Row{
				{From: "client", To: spec.HostAt("n1", hostPort), Times: 3, Servers: []string{"p1"}},
				{From: "client", To: spec.HostAt("n1", hostPort).AtAddr(spec.Secondary), Times: 3, Servers: []string{"p2"}},
				{From: "client", To: spec.HostAt("n1", hostPort), Proto: "udp", Times: 3, Servers: []string{"p3"}},
				{From: "client", To: spec.HostAt("n2", hostPort), Want: spec.Refused},
				{From: "client", To: spec.HostAt("n1", 30051), Times: 3, Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n1", "later", 80), Times: 3, Servers: []string{"a2"}},
			},
		}},
	}
}
