package networkpolicy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/kube"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// keepsSource is what a proxier must promise for a policy to know who asks through a Service.
var keepsSource = []spec.Feature{spec.NetworkPolicy, spec.ClusterIP, spec.SourceAddress}

// services are the scenarios of policies behind Services.
var services = []spec.Scenario{
	{
		ID: "np-default-open", Group: group, Priority: spec.P0, Source: "introductions to network policies",
		Why:   "Without a policy every pod reaches every pod, by its address and through a Service.",
		Needs: []spec.Feature{spec.NetworkPolicy, spec.ClusterIP},
		Given: four(db("a1"), Service("db", Port(80, 8080))),
		Steps: []spec.Step{step("", nil, open("a1", "b1", "b2"), open("c2", "a1", "b2"), []spec.Row{
			{From: "b1", To: spec.ClusterIPOf("db", 80), By: []string{"db-a1"}},
			{From: "b2", To: spec.ClusterIPOf("db", 80), By: []string{"db-a1"}},
		})},
	},
	{
		ID: "np-via-service", Group: group, Priority: spec.P0, Source: "introductions to network policies: allow-db-access",
		Why:   "A database that only pods with a label may reach answers the backend through its Service, and not the frontend.",
		Needs: keepsSource,
		Given: []kube.Object{
			Pod("frontend", "n1"), Pod("backend", "n1", Labelled("networking/allow-db-access", "true")),
			db("a2"), Service("db", Port(80, 8080)),
			policy("allow-db-access", labels("app", "db"), ingress(allow(pods(labels("networking/allow-db-access", "true"))))),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "backend", To: spec.ClusterIPOf("db", 80), By: []string{"db-a2"}},
			{From: "frontend", To: spec.ClusterIPOf("db", 80), Want: denied},
		}}},
	},
	{
		ID: "np-per-pod-after-dnat", Group: group, Priority: spec.P0, Source: "introductions to network policies; Calico fv service_policy",
		Why:   "A policy is judged on the pod's address and port, whichever way leads there: by the pod's address, a ClusterIP or a NodePort.",
		Needs: append([]spec.Feature{spec.NodePort}, keepsSource...),
		Given: four(
			echo("db-a1", "n1", App("db")), Service("db", Port(80, 8080), NodePort()),
			policy("p", labels("app", "db"), ingress(allow(pods(pod("b1")), pods(pod("b2"))).on(corev1.ProtocolTCP, 8080))),
		),
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "b1", To: spec.HostAt("db-a1", 8080), By: []string{"db-a1"}},
			{From: "b1", To: spec.ClusterIPOf("db", 80), By: []string{"db-a1"}},
			{From: "b1", To: spec.NodePortAt("n1", "db", 80), By: []string{"db-a1"}},
			{From: "b2", To: spec.HostAt("db-a1", 8080), By: []string{"db-a1"}},
			{From: "b2", To: spec.ClusterIPOf("db", 80), By: []string{"db-a1"}},
			{From: "c2", To: spec.HostAt("db-a1", 8080), Want: denied},
			{From: "c2", To: spec.ClusterIPOf("db", 80), Want: denied},
			{From: "a1", To: spec.HostAt("db-a1", 8080), Want: denied},
			{From: "a1", To: spec.ClusterIPOf("db", 80), Want: denied},
			{From: "a1", To: spec.NodePortAt("n1", "db", 80), Want: denied},
			{From: "client", To: spec.NodePortAt("n1", "db", 80), Want: denied},
			{From: "client", To: spec.NodePortAt("n2", "db", 80), Want: denied},
		}}},
	},
	{
		ID: "np-masqueraded-sources", Group: group, Priority: spec.P1, Source: "kube-router user guide, 'SNATing Service Traffic'; kubernetes#67202",
		Why:   "A policy that allows the address of a client outside lets it in where the proxier keeps that address (externalTrafficPolicy Local), and not where another node has rewritten it.",
		Needs: append([]spec.Feature{spec.NodePort, spec.ETPLocal}, keepsSource...),
		Given: []kube.Object{db("a2"), Service("cluster", Selecting("db"), NodePort()), Service("local", Selecting("db"), NodePort(), ETPLocal())},
		Steps: []spec.Step{{
			Do: do(applyFrom("p", labels("app", "db"), "client")),
			Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n2", "local", 80), By: []string{"db-a2"}, SeenAs: spec.Itself()},
				{From: "router", To: spec.NodePortAt("n2", "local", 80), Want: denied},
				{From: "client", To: spec.NodePortAt("n1", "cluster", 80), Want: denied},
			},
		}},
	},
	{
		ID: "np-egress-after-dnat", Group: group, Priority: spec.P0, Source: "aws-network-policy-agent PR 210; kubernetes#102286; kube-router#905",
		Why:   "An egress rule names pods and their ports: the port of the Service is neither asked for nor enough.",
		Needs: keepsSource,
		Given: []kube.Object{
			Pod("by-target", "n1"), Pod("by-port", "n1"), Pod("by-pod", "n1"), Pod("by-other", "n1"), db("a2"), Service("db", Port(80, 8080)),
			policy("target", pod("by-target"), egress(allow().on(corev1.ProtocolTCP, 8080))),
			policy("port", pod("by-port"), egress(allow().on(corev1.ProtocolTCP, 80))),
			policy("pod", pod("by-pod"), egress(allow(pods(labels("app", "db"))))),
			policy("other", pod("by-other"), egress(allow(pods(pod("by-pod"))))),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "by-target", To: spec.ClusterIPOf("db", 80), By: []string{"db-a2"}},
			{From: "by-port", To: spec.ClusterIPOf("db", 80), Want: denied},
			{From: "by-pod", To: spec.ClusterIPOf("db", 80), By: []string{"db-a2"}},
			{From: "by-other", To: spec.ClusterIPOf("db", 80), Want: denied},
		}}},
	},
	{
		ID: "np-own-address", Group: group, Priority: spec.P0, Source: "API reference of NetworkPolicy; network-policy-api PR 390",
		Why:   "A pod that is isolated both ways still reaches itself by its own address.",
		Needs: enforced,
		Given: four(policy("p", pod("a1"), ingress(), egress())),
		Steps: []spec.Step{step("", nil, open("a1", "a1"), shut("a1", "b1", "b2"), shut("b1", "a1"))},
	},
}

// db is a pod behind the Service db.
func db(at string) kube.Object {
	return echo("db-"+at, map[string]string{"a1": "n1", "a2": "n2"}[at], App("db"))
}
