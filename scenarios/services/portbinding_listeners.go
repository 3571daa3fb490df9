// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// listeners are the scenarios of processes that listen where a NodePort is.
func listeners() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "pb-nodeport-beats-listener", NodePorts: []uint16{30046},
			Needs: []spec.Feature{spec.NodePort, spec.NodePortPrecedence},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2")},
			Steps: []spec.Step{
				{Name: "a process", Do: []spec.Action{Serve("n1", "tcp", 30046)}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30046), By: []string{"n1"}},
				}},
				{Name: "a Service too", Do: []spec.Action{Apply(portbindingAt(30046))}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
					{From: "c1", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
					{From: "n1", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
				}},
			},
		},
		{
			ID: "pb-proxier-dead-listener", NodePorts: []uint16{30048}, Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
			Needs: []spec.Feature{spec.NodePort, spec.NodePortPrecedence, spec.SurvivesRestart},
			Given: []store.Object{Backend("a2", "n2"), portbindingAt(30048)},
			Steps: []spec.Step{
				{Name: "the proxier runs", Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), By: []string{"a2"}},
				}},
				{Name: "it was killed, and the port is another process's", Do: []spec.Action{
					{Name: "kill the proxier of n1", Run: func(ctx context.Context,
						w spec.World) error {
						return w.Life("n1").Kill(ctx)
					}},
					Serve("n1", "tcp", 30048),
				}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), Times: 3, By: []string{"a2"}},
				}},
				{Name: "a pod joins", Do: []spec.Action{Apply(Backend("a3", "n3"))}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30048), Times: 25, By: []string{"a2"}},
					{From: "client", To: spec.HostAt("n2", 30048), By: []string{"a2", "a3"}, Even: true},
				}},
			},
		},
		{
			ID: "pb-listener-gets-port-back", NodePorts: []uint16{30049},
			Cluster: OnPrimaryAddresses(),
			Needs:   []spec.Feature{spec.NodePort, spec.NodePortPrecedence},
			Given:   []store.Object{Backend("a2", "n2"), portbindingAt(30049)},
			Steps: []spec.Step{
				{Name: "a process and a Service", Do: []spec.Action{Serve("n1", "tcp", 30049), Serve("n1", "udp", 30049)},
					Rows: []spec.Row{
						{From: "client", To: spec.HostAt("n1", 30049), By: []string{"a2"}},
						{From: "client", To: spec.HostAt("n1", 30049), Proto: "udp", By: []string{"n1"}},
						{From: "client", To: spec.HostAt("n1", 30049).On(spec.Secondary), By: []string{"n1"}},
					}},
				{Name: "the Service is gone", Do: []spec.Action{Delete("Service", "web")}, Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30049), By: []string{"n1"}},
				}},
			},
		},
	}
}

// at is a NodePort Service that chooses its nodePort, from the part of the range that is left to people.
func portbindingAt(nodePort int32) *corev1.Service {
	return Service("web", NodePort(), Port(80, 8080), func(s *corev1.Service) { s.Spec.Ports[0].NodePort = nodePort })
}
