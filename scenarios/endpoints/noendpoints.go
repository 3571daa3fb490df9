// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// noendpoints returns the scenarios of Services without endpoints: clients are refused at once.
func noendpoints() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "noep-clusterip-refused", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), Service("web")},
			Steps: []spec.Step{{
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.Refused, Flow: spec.UntrackedOn("n1")},
					{From: "n1", To: spec.ClusterIPOf("web", 80), Want: spec.Refused, Flow: spec.UntrackedOn("n1")},
				},
			}},
		},
		noepNodeportRefused(),
		{
			ID:    "noep-lb-external-refused",
			Needs: []spec.Feature{spec.LoadBalancer, spec.ExternalIPs},
			Given: []store.Object{Service("web", LoadBalancer(), ExternalIPs(eip4, eip6))},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Ingress("web", "203.0.113.20", "2001:db8:113::20"), RouteVia("client", "203.0.113.20", "2001:db8:113::20", "n1"),
					RouteVia("client", eip4, eip6, "n1"),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), Want: spec.Refused},
					{From: "client", To: spec.AddrAt(eip4, eip6, 80), Want: spec.Refused},
				},
			}},
		},
		{
			ID:    "noep-host-to-lb-or-eip",
			Needs: []spec.Feature{spec.LoadBalancer, spec.ExternalIPs},
			Given: []store.Object{Service("web", LoadBalancer(), ExternalIPs("198.51.100.21", "2001:db8:51::21"))},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.21", "2001:db8:113::21")},
				Rows: []spec.Row{
					{From: "n1", To: spec.IngressOf("web", 80), Want: spec.Refused},
					{From: "n1", To: spec.AddrAt("198.51.100.21", "2001:db8:51::21", 80), Want: spec.Refused},
				},
			}},
		},
		{
			ID: "noep-evicted", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2"), Service("web"), Service("eager", Selecting("web"), PublishNotReady()),
			},
			Steps: []spec.Step{
				{Name: "before", Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
					{From: "c1", To: spec.ClusterIPOf("eager", 80), Servers: []string{"a2"}},
				}},
				{Name: "the pod is evicted", Do: []spec.Action{evict("a2")}, Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.Refused},
					{From: "c1", To: spec.ClusterIPOf("eager", 80), Want: spec.Refused},
				}},
			},
		},
		{
			ID: "noep-udp", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), Service("web", UDPPort(53, 8080))},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 53), Proto: "udp", Want: spec.Refused},
				{From: "n1", To: spec.ClusterIPOf("web", 53), Proto: "udp", Want: spec.Refused},
			}}},
		},
	}
}

func noepNodeportRefused() spec.Scenario {
	return spec.Scenario{
		ID: "noep-nodeport-refused", Needs: []spec.Feature{spec.NodePort, spec.ETPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("any", NodePort(), Selecting("web")),
			Service("local", NodePort(), ETPLocal(), Selecting("web")),
		},
		Steps: []spec.Step{
			{Name: "somebody serves it", Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "any", 80), Servers: []string{"a2"}},
				{From: "client", To: spec.NodePortAt("n2", "local", 80), Servers: []string{"a2"}},
			}},
			{Name: "nobody does", Do: []spec.Action{Delete("Pod", "a2")}, Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "any", 80), Want: spec.Refused},
				{From: "client", To: spec.NodePortAt("n2", "any", 80), Want: spec.Refused},
				{From: "client", To: spec.NodePortAt("n3", "any", 80), Want: spec.Refused},
				{From: "c1", To: spec.NodePortAt("n1", "any", 80), Want: spec.Refused},
				{From: "client", To: spec.NodePortAt("n1", "local", 80), Want: nothingLocal, Choice: localChoice},
				{From: "client", To: spec.NodePortAt("n2", "local", 80), Want: nothingLocal, Choice: localChoice},
				{From: "client", To: spec.NodePortAt("n3", "local", 80), Want: nothingLocal, Choice: localChoice},
				{From: "c1", To: spec.NodePortAt("n1", "local", 80), Want: nothingLocal, Choice: localChoice},
			}},
		},
	}
}

// The API says that traffic to a node without an endpoint is dropped under policy Local. It does not say what becomes
// of it where there is no endpoint at all.
const (
	nothingLocal = spec.Refused | spec.Silence
	localChoice  = "a NodePort of a Service of policy Local without any endpoint"
)

const eip4, eip6 = "198.51.100.20", "2001:db8:51::20"

// evict ends a pod as a kubelet that is short of memory does: the pod stays, as one that has failed.
func evict(pod string) spec.Action {
	return spec.Action{Name: "evict pod " + pod, Run: func(_ context.Context, w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), pod, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			SetReady(p, false)
		})
	}}
}
