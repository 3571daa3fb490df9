// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// lifecycle returns the scenarios of endpoints and Services that come, change and go.
func lifecycle() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "ep-add-remove",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), both("a1", "n1"), both("a2", "n2"),
				Service("web", Port(80, 8080), UDPPort(80, 8080))},
			Steps: []spec.Step{
				{Name: "two endpoints", Rows: bothProtocols("a1", "a2")},
				{Name: "a third joins", Do: []spec.Action{Apply(both("a3", "n3"))}, Rows: bothProtocols("a1", "a2", "a3")},
				{Name: "the first leaves", Do: []spec.Action{Delete("Pod", "a1")}, Rows: bothProtocols("a2", "a3")},
			},
		},
		{
			ID:    "ep-multiple-slices",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a1", "n1", TCP(8080), TCP(9090)), Pod("a2", "n2", TCP(8080)), Pod("a3", "n3", TCP(9090)),
				Service("web", Selecting(""), ServicePort("http", corev1.ProtocolTCP, 80, 8080),
					ServicePort("adm", corev1.ProtocolTCP, 81, 9090)),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Endpoints("http-1", "web", "http", 8080, "a1"), Endpoints("http-2", "web", "http", 8080, "a1", "a2"),
					Endpoints("adm-1", "web", "adm", 9090, "a1"), Endpoints("adm-2", "web", "adm", 9090, "a3"),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1", "a2"}, Port: 8080, Even: true},
					{From: "c1", To: spec.ClusterIPOf("web", 81), By: []string{"a1", "a3"}, Port: 9090, Even: true},
				},
			}},
		},
		{
			ID:    "ep-manual-endpoints",
			Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("h2", "n2", HostNetwork(), TCP(18080)),
				Service("api", Selecting(""), Port(443, 18080)), Service("outside", Selecting(""), Port(80, 18081)),
			},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Serve("client", "tcp", 18081), Endpoints("api", "api", "", 18080, "n2"),
					Endpoints("outside", "outside", "", 18081, "client"),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("api", 443), By: []string{"h2"}},
					{From: "n1", To: spec.ClusterIPOf("api", 443), By: []string{"h2"}},
					{From: "n2", To: spec.ClusterIPOf("api", 443), By: []string{"h2"}},
					{From: "c1", To: spec.ClusterIPOf("outside", 80), By: []string{"client"}},
					{From: "n1", To: spec.ClusterIPOf("outside", 80), By: []string{"client"}},
				},
			}},
		},
		programmingLatency(),
		externalNameTransitions(),
		scaleToZeroAndBack(),
		notReadyExcluded(),
		publishNotReady(),
		terminatingCluster(),
		terminatingLocal(),
		conditionDefaults(),
		ipReuse(),
		eventOrder(),
		targetPortVariants(),
		deadBackend(),
		deleteRecreate(),
		portsChange(),
		proxyNameLabel(),
	}
}

// both is a backend that serves TCP and UDP on 8080.
func both(name, node string) *corev1.Pod { return Backend(name, node, UDP(8080)) }

func bothProtocols(by ...string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), By: by, Even: true},
		{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", By: by, Even: true},
	}
}
