// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// clients are the scenarios of clients inside the cluster, and of what is no NodePort.
func clients() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "nodeport-from-pod",
			Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.NodePortAt("n1", "web", 80), Times: 10, By: []string{"b1", "a2"}, Port: 8080,
					SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		{
			ID:    "nodeport-from-host",
			Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Backend("b1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "n1", To: spec.NodePortAt("n1", "web", 80), Times: 10, By: []string{"b1", "a2"}, Port: 8080,
					SeenAs: spec.NodeAddr("n1")},
			}}},
		},
		{
			ID:    "nodeport-remote-node-not-captured",
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
			ID: "nodeport-egress-not-hijacked", NodePorts: []uint16{30040},
			Needs: []spec.Feature{spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), nodeportAt("web", 30040)},
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
			ID: "nodeport-wrong-pairing", NodePorts: []uint16{30041},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), nodeportAt("web", 30041)},
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
}

// at is a NodePort Service that chooses its nodePort, from the part of the range that is left to people.
func nodeportAt(name string, nodePort int32) *corev1.Service {
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
