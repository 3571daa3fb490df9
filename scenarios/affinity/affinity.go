// Package affinity holds the scenarios of sessionAffinity ClientIP.
package affinity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/kube"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

var three = []string{"a1", "a2", "a3"}

func threeBackends(service *corev1.Service) []kube.Object {
	return []kube.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), service}
}

// setAffinity changes the affinity of a Service in place.
func setAffinity(to corev1.ServiceAffinity) spec.Action {
	return Edit("web", func(s *corev1.Service) {
		s.Spec.SessionAffinity = to
		s.Spec.SessionAffinityConfig = nil
	})
}

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "affinity-clusterip", Group: "session-affinity", Priority: spec.P0,
		Source: "e2e service.go 'have session affinity work for service with type clusterIP'",
		Why:    "All connections of one client to a ClusterIP go to one pod.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.SessionAffinity},
		Given:  threeBackends(Service("web", Affinity())),
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 40, By: three, Sticky: true},
		}}},
	},
	{
		ID: "affinity-nodeport", Group: "session-affinity", Priority: spec.P0,
		Source: "e2e service.go 'have session affinity work for NodePort service'",
		Why:    "All connections of one client to a NodePort of one node go to one pod.",
		Needs:  []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given:  threeBackends(Service("web", NodePort(), Affinity())),
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 40, By: three, Sticky: true},
			{From: "c1", To: spec.NodePortAt("n1", "web", 80), Times: 40, By: three, Sticky: true},
		}}},
	},
	{
		ID: "affinity-toggle", Group: "session-affinity", Priority: spec.P0,
		Source: "e2e service.go 'be able to switch session affinity for service with type clusterIP', '… for NodePort service'",
		Why:    "Affinity can be switched on and off while the Service is in use.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
		Given:  threeBackends(Service("web", NodePort())),
		Steps: []spec.Step{
			{Name: "none", Rows: spreadOrSticky(false)},
			{Name: "ClientIP", Do: []spec.Action{setAffinity(corev1.ServiceAffinityClientIP)}, Rows: spreadOrSticky(true)},
			{Name: "none again", Do: []spec.Action{setAffinity(corev1.ServiceAffinityNone)}, Rows: spreadOrSticky(false)},
		},
	},
}

func spreadOrSticky(sticky bool) []spec.Row {
	rows := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), By: three},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), By: three},
	}
	for i := range rows {
		if sticky {
			rows[i].Times, rows[i].Sticky = 40, true
		} else {
			rows[i].Times, rows[i].Even = 90, true
		}
	}
	return rows
}
