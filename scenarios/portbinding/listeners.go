// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// listeners are the scenarios of processes that listen where a NodePort is.
var listeners = []spec.Scenario{
	{
		ID: "pb-nodeport-beats-listener", Group: "port-binding", Priority: spec.P0,
		Source: "rules in PREROUTING come before any socket is looked up",
		Why:    "A NodePort leads to the pods, whoever listens on the same port of the node.",
		Needs:  []spec.Feature{spec.NodePort, spec.NodePortPrecedence},
		Given:  []store.Object{Pod("c1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{
			{Name: "a process", Do: []spec.Action{Serve("n1", "tcp", 30046)}, Rows: []spec.Row{
				{From: "client", To: spec.HostAt("n1", 30046), By: []string{"n1"}},
			}},
			{Name: "a Service too", Do: []spec.Action{Apply(at(30046))}, Rows: []spec.Row{
				{From: "client", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
				{From: "c1", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
				{From: "n1", To: spec.HostAt("n1", 30046), Times: 3, By: []string{"a2"}},
			}},
		},
	},
	{
		ID: "pb-proxier-dead-listener", Group: "port-binding", Priority: spec.P0, Own: &spec.Own{Nodes: []string{"n1", "n2"}},
		Source: "what a proxier has programmed stays in the kernel",
		Why: "Where the proxier was killed and another process has bound the nodePort, the NodePort still leads to the " +
			"pods; those that join are not known to the node.",
		Needs: []spec.Feature{spec.NodePort, spec.NodePortPrecedence, spec.SurvivesRestart},
		Given: []store.Object{Backend("a2", "n2"), at(30048)},
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
		ID: "pb-listener-gets-port-back", Group: "port-binding", Priority: spec.P1,
		Own:    OnPrimaryAddresses(),
		Source: "NodePorts are rules for some addresses and one protocol",
		Why: "A process that listens where a NodePort is has all else: the other protocol, the addresses that serve no " +
			"NodePorts, and the port itself once the Service is gone.",
		Needs: []spec.Feature{spec.NodePort, spec.NodePortPrecedence},
		Given: []store.Object{Backend("a2", "n2"), at(30049)},
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

// at is a NodePort Service that chooses its nodePort, from the part of the range that is left to people.
func at(nodePort int32) *corev1.Service {
	return Service("web", NodePort(), Port(80, 8080), func(s *corev1.Service) { s.Spec.Ports[0].NodePort = nodePort })
}
