// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// selection returns the scenarios of how a Service's spec makes endpoints of pods.
func selection() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "svc-target-port-omitted", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"),
				Service("web", NodePort(), Port(8080, 8080), target0),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 8080), Servers: []string{"a1", "a2"}, Port: 8080, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "web", 8080), Servers: []string{"a1", "a2"}, Port: 8080, Even: true},
			}}},
		},
		targetPortNameMissing(),
		{
			ID: "ep-publish-not-ready-toggled", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{
				{Name: "no", Do: []spec.Action{Readiness("a2", false)}, Rows: []spec.Row{only("c1", "web", "a1")}},
				{Name: "yes", Do: []spec.Action{Edit("web", publishing(true))}, Rows: []spec.Row{even("c1", "web", "a1", "a2")}},
				{Name: "no again", Do: []spec.Action{Edit("web", publishing(false))},
					Rows: []spec.Row{only("c1", "web", "a1")}},
			},
		},
	}
}

// target0 leaves the target ports out.
func target0(s *corev1.Service) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].TargetPort = intstr.IntOrString{}
	}
}

func publishing(notReady bool) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = notReady }
}

// targetPortNameMissing has pods that know both names, one of them, and neither.
func targetPortNameMissing() spec.Scenario {
	named := func(port int32, name string) ServiceOption {
		return func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports,
				corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromString(name)})
		}
	}
	return spec.Scenario{
		ID: "ep-target-port-name-missing", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a1", "n1", App("web"), Named("http", 8080), Named("adm", 9090)),
			Pod("a2", "n2", App("web"), Named("adm", 8080)), Pod("a3", "n3", App("web"), TCP(8080), TCP(9090)),
			Service("web", named(80, "http"), named(81, "adm"), named(82, "none")),
		},
		Steps: []spec.Step{{Rows: append(WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 82), Times: 3}),
			spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: lifecycleDraws, Servers: []string{"a1"}, Port: 8080},
			spec.Row{From: "c1", To: spec.ClusterIPOf("web", 81), Servers: []string{"a1", "a2"}, Even: true},
		)}},
	}
}
