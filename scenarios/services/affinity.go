// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

var three = []string{"a1", "a2", "a3"}

func threeBackends(service *corev1.Service) []store.Object {
	return []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), service}
}

// setAffinity changes the affinity of a Service in place.
func setAffinity(to corev1.ServiceAffinity) spec.Action {
	return Edit("web", func(s *corev1.Service) {
		s.Spec.SessionAffinity = to
		s.Spec.SessionAffinityConfig = nil
	})
}

// affinity returns the scenarios of sessionAffinity ClientIP.
func affinity() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "affinity-clusterip",
			Needs: []spec.Feature{spec.ClusterIP, spec.SessionAffinity},
			Given: threeBackends(Service("web", Affinity())),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), By: three, Sticky: true},
			}}},
		},
		{
			ID:    "affinity-nodeport",
			Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
			Given: threeBackends(Service("web", NodePort(), Affinity())),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: three, Sticky: true},
				{From: "c1", To: spec.NodePortAt("n1", "web", 80), By: three, Sticky: true},
			}}},
		},
		{
			ID:    "affinity-toggle",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
			Given: threeBackends(Service("web", NodePort())),
			Steps: []spec.Step{
				{Name: "none", Rows: spreadOrSticky(false)},
				{Name: "ClientIP", Do: []spec.Action{setAffinity(corev1.ServiceAffinityClientIP)}, Rows: spreadOrSticky(true)},
				{Name: "none again", Do: []spec.Action{setAffinity(corev1.ServiceAffinityNone)}, Rows: spreadOrSticky(false)},
			},
		},
		{
			ID:    "affinity-lb-both-policies",
			Needs: []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.SessionAffinity},
			Given: append(threeBackends(Service("any", LoadBalancer(), Affinity(), Selecting("web"))),
				Backend("b1", "n1"), Service("local", LoadBalancer(), ETPLocal(), Affinity(), Selecting("web"))),
			Steps: []spec.Step{{
				Do: []spec.Action{
					Ingress("any", "203.0.113.80", "2001:db8:113::80"), RouteVia("client", "203.0.113.80", "2001:db8:113::80", "n1"),
					Ingress("local", "203.0.113.81", "2001:db8:113::81"), RouteVia("client", "203.0.113.81", "2001:db8:113::81", "n1"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("any", 80), By: append([]string{"b1"}, three...), Sticky: true},
					{From: "client", To: spec.IngressOf("local", 80), By: []string{"a1", "b1"}, Sticky: true},
				},
			}},
		},
		{
			ID:    "affinity-endpoint-removed",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort(), Affinity())},
			Steps: []spec.Step{
				{Name: "one pod", Rows: stuckTo(1, "a1")},
				{Name: "others join", Do: []spec.Action{Apply(Backend("a2", "n2"), Backend("a3", "n3"))}, Rows: stuckTo(25, "a1")},
				{Name: "the first is gone", Do: []spec.Action{Delete("Pod", "a1")}, Rows: stuckTo(25, "a2", "a3")},
			},
		},
		{
			ID:    "affinity-udp",
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.SessionAffinity},
			Given: []store.Object{
				Pod("c1", "n1"), udpPod("a1", "n1"), udpPod("a2", "n2"), udpPod("a3", "n3"),
				Service("web", LoadBalancer(), Affinity(), UDPPort(80, 8080)),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.82", "2001:db8:113::82"),
					RouteVia("client", "203.0.113.82", "2001:db8:113::82", "n1")},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", By: three, Sticky: true},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Proto: "udp", By: three, Sticky: true},
					{From: "client", To: spec.IngressOf("web", 80), Proto: "udp", By: three, Sticky: true},
				},
			}},
		},
		{
			ID: "affinity-survives-resync", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity, spec.SurvivesRestart},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort(), Affinity())},
			Steps: []spec.Step{
				{Name: "one pod", Rows: stuckTo(1, "a1")},
				{Name: "others join, and the proxier of n1 starts again", Do: []spec.Action{
					Apply(Backend("a2", "n2"), Backend("a3", "n3")),
					{Name: "start the proxier of n1 again", Run: func(ctx context.Context,
						w spec.World) error {
						return w.Life("n1").Start(ctx)
					}},
				}, Rows: stuckTo(25, "a1")},
			},
		},
		keyedBySource(),
		manyClients(),
		timeout(),
	}
}

// stuckTo wants a client inside and one outside to stay with one of the pods each.
func stuckTo(times int, by ...string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Times: times, By: by, Sticky: true},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: times, By: by, Sticky: true},
	}
}

func spreadOrSticky(sticky bool) []spec.Row {
	rows := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), By: three},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), By: three},
	}
	for i := range rows {
		rows[i].Sticky, rows[i].Even = sticky, !sticky
	}
	return rows
}
