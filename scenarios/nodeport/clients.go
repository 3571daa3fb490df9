// SPDX-License-Identifier: Apache-2.0

package nodeport

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// clients are the scenarios of clients inside the cluster, and of what is no NodePort.
var clients = []spec.Scenario{
	{
		ID: "nodeport-from-pod", Group: "nodeport", Priority: spec.P1,
		Source: "TestInternalExternalMasquerade 'pod to NodePort'; e2e networking.go 'function for pod-Service: http'",
		Why:    "A pod reaches the NodePort of its own node; a pod elsewhere sees the node.",
		Needs:  []spec.Feature{spec.NodePort},
		Given:  []store.Object{Pod("c1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.NodePortAt("n1", "web", 80), Times: 10, By: []string{"b1", "a2"}, Port: 8080,
				SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "nodeport-from-host", Group: "nodeport", Priority: spec.P1,
		Source: "TestInternalExternalMasquerade 'node to NodePort'; e2e networking.go 'function for node-Service: http'",
		Why:    "A process on a node reaches the NodePort of its own node; the pod sees the node.",
		Needs:  []spec.Feature{spec.NodePort},
		Given:  []store.Object{Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "n1", To: spec.NodePortAt("n1", "web", 80), Times: 10, By: []string{"b1", "a2"}, Port: 8080,
				SeenAs: spec.NodeAddr("n1")},
		}}},
	},
	{
		ID: "nodeport-remote-node-not-captured", Group: "nodeport", Priority: spec.P1,
		Source: "NodePorts match destinations of type LOCAL alone",
		Why: "What a pod sends to the NodePort of another node is that node's to translate; its own node lets it pass " +
			"as it is.",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{Pod("c1", "n1"), Backend("a3", "n3"), Service("web", NodePort())},
		Steps: []spec.Step{{
			Rows: []spec.Row{
				{From: "c1", To: spec.NodePortAt("n2", "web", 80), By: []string{"a3"}, SeenAs: spec.NodeAddr("n2"),
					Flow: spec.MasqueradedOn("n2")},
			},
			Check: passedAsItIs,
		}},
	},
	{
		ID: "nodeport-egress-not-hijacked", Group: "nodeport", Priority: spec.P1,
		Source: "NodePorts match destinations of type LOCAL alone, said so in the userspace proxier",
		Why: "A NodePort's number is nothing special on other machines: connections to the same port of a host outside " +
			"get there.",
		Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), at("web", 30040)},
		Steps: []spec.Step{{
			Do: []spec.Action{Serve("client", "tcp", 30040)},
			Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				{From: "c1", To: spec.HostAt("client", 30040), By: []string{"client"}, Port: 30040},
				{From: "n1", To: spec.HostAt("client", 30040), By: []string{"client"}, Port: 30040},
			},
		}},
	},
	{
		ID: "nodeport-wrong-pairing", Group: "nodeport", Priority: spec.P1,
		Source: "TestClusterIPGeneral; kubernetes#75443, kubernetes#93674",
		Why: "The ClusterIP has the Service's port and nodes have the nodePort, for one protocol: every other pairing " +
			"leads nowhere.",
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), at("web", 30041)},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}},
			{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
			{From: "c1", To: spec.ClusterIPRaw("web", 30041), Want: spec.NotServed},
			{From: "n1", To: spec.ClusterIPRaw("web", 30041), Want: spec.NotServed},
			{From: "client", To: spec.HostAt("n1", 80), Want: spec.Refused},
			{From: "c1", To: spec.HostAt("n1", 80), Want: spec.Refused},
			{From: "client", To: spec.HostAt("n1", 30041), Proto: "udp", Want: spec.Refused},
			{From: "c1", To: spec.HostAt("n1", 30041), Proto: "udp", Want: spec.Refused},
		}}},
	},
}

// at is a NodePort Service that chooses its nodePort, from the part of the range that is left to people.
func at(name string, nodePort int32) *corev1.Service {
	return Service(name, Selecting("web"), NodePort(), Port(80, 8080),
		func(s *corev1.Service) { s.Spec.Ports[0].NodePort = nodePort })
}

// passedAsItIs wants n1 to have left the connection to n2 alone.
func passedAsItIs(ctx context.Context, w spec.World) error {
	ports, err := ResolveAll(w, spec.NodePortAt("n2", "web", 80), "tcp")
	if err != nil {
		return err
	}
	translated, err := w.Flows(ctx, "n1", func(x observe.Flow) bool {
		return slices.Contains(ports, x.Orig.Dst) && x.Reply.Src != x.Orig.Dst
	})
	if err == nil && len(translated) > 0 {
		err = fmt.Errorf("n1 translates what goes to n2: %s", translated[0])
	}
	return err
}
