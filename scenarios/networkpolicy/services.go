// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	server "github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// keepsSource is what a proxier must promise for a policy to know who asks through a Service.
var keepsSource = []spec.Feature{spec.NetworkPolicy, spec.ClusterIP, spec.SourceAddress}

// services are the scenarios of policies behind Services.
func services() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-default-open", Needs: []spec.Feature{spec.NetworkPolicy, spec.ClusterIP},
			Given: four(db("a1"), Service("db", Port(80, 8080))),
			Steps: []spec.Step{step("", nil, open("a1", "b1", "b2"), open("c2", "a1", "b2"), []spec.Row{
				{From: "b1", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a1"}},
				{From: "b2", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a1"}},
			})},
		},
		{
			ID: "np-via-service", Needs: keepsSource,
			Given: []store.Object{
				Pod("frontend", "n1"), Pod("backend", "n1", Labelled("networking/allow-db-access", "true")),
				db("a2"), Service("db", Port(80, 8080)),
				policy("allow-db-access", labels("app", "db"),
					ingress(allow(pods(labels("networking/allow-db-access", "true"))))),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "backend", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a2"}},
				{From: "frontend", To: spec.ClusterIPOf("db", 80), Want: denied},
			}}},
		},
		{
			ID: "np-per-pod-after-dnat", Needs: append([]spec.Feature{spec.NodePort}, keepsSource...),
			Given: four(
				echo("db-a1", "n1", App("db")), Service("db", Port(80, 8080), NodePort()),
				policy("p", labels("app", "db"), ingress(allow(pods(pod("b1")), pods(pod("b2"))).on(corev1.ProtocolTCP,
					8080))),
			),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b1", To: spec.HostAt("db-a1", 8080), Servers: []string{"db-a1"}},
				{From: "b1", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a1"}},
				{From: "b1", To: spec.NodePortAt("n1", "db", 80), Servers: []string{"db-a1"}},
				{From: "b2", To: spec.HostAt("db-a1", 8080), Servers: []string{"db-a1"}},
				{From: "b2", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a1"}},
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
			ID: "np-masqueraded-sources", Needs: append([]spec.Feature{spec.NodePort, spec.ETPLocal}, keepsSource...),
			Given: []store.Object{db("a2"), Service("cluster", Selecting("db"), NodePort()),
				Service("local", Selecting("db"), NodePort(), ETPLocal())},
			Steps: []spec.Step{{
				Do: do(applyFrom("p", labels("app", "db"), "client")),
				Rows: []spec.Row{
					{From: "client", To: spec.NodePortAt("n2", "local", 80), Servers: []string{"db-a2"},
						SeenAs: spec.ClientAddr()},
					{From: "router", To: spec.NodePortAt("n2", "local", 80), Want: denied},
					{From: "client", To: spec.NodePortAt("n1", "cluster", 80), Want: denied},
				},
			}},
		},
	}
}

// backends returns the scenarios of what a policy makes of a Service's several pods and ports.
func backends() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-egress-after-dnat", Needs: keepsSource,
			Given: []store.Object{
				Pod("by-target", "n1"), Pod("by-port", "n1"), Pod("by-pod", "n1"), Pod("by-other", "n1"), db("a2"),
				Service("db", Port(80, 8080)),
				policy("target", pod("by-target"), egress(allow().on(corev1.ProtocolTCP, 8080))),
				policy("port", pod("by-port"), egress(allow().on(corev1.ProtocolTCP, 80))),
				policy("pod", pod("by-pod"), egress(allow(pods(labels("app", "db"))))),
				policy("other", pod("by-other"), egress(allow(pods(pod("by-pod"))))),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "by-target", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a2"}},
				{From: "by-port", To: spec.ClusterIPOf("db", 80), Want: denied},
				{From: "by-pod", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a2"}},
				{From: "by-other", To: spec.ClusterIPOf("db", 80), Want: denied},
			}}},
		},
		{
			ID: "np-services-same-verdicts", Needs: keepsSource,
			Given: append(four(
				policy("deny-out", pod("b1"), egress()), policy("some-in", pod("a1"),
					ingress(allow(pods(pod("b2"))).on(corev1.ProtocolTCP, 8080))),
				policy("none-in", pod("c2"), ingress()),
			), eachService("a1", "b1", "b2", "c2")...),
			Steps: []spec.Step{{Rows: eachWay()}},
		},
		{
			ID: "np-backend-denied", Needs: keepsSource,
			Given: four(
				db("a1"), db("a2"), Service("db", Port(80, 8080)),
				policy("out", pod("b1"), egress(allow(pods(pod("db-a2"))))),
				policy("in", pod("db-a2"), ingress(allow(pods(pod("b1"))))),
			),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b1", To: spec.ClusterIPOf("db", 80), Times: 100, Want: spec.Reply | denied,
					Servers: []string{"db-a2"},
					Even:    true},
				{From: "c2", To: spec.ClusterIPOf("db", 80), Times: 100, Want: spec.Reply | denied,
					Servers: []string{"db-a1"},
					Even:    true},
			}}},
		},
		{
			ID: "np-named-target-port", Needs: keepsSource,
			Given: four(
				Pod("db-a2", "n2", App("db"), Named("sql", 8080)), Pod("db-a3", "n3", App("db"), Named("sql", 8081)),
				Service("db", TargetNamed(80, "sql")),
				policy("out", pod("b1"), egress(allow().on(corev1.ProtocolTCP, 8080))),
			),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b1", To: spec.ClusterIPOf("db", 80), Times: 100, Want: spec.Reply | denied, Servers: []string{"db-a2"},
					Even: true},
			}}},
		},
		{
			ID: "np-block-of-service", Needs: keepsSource,
			Given: []store.Object{Pod("b1", "n1"), db("a2"), Service("db", Port(80, 8080))},
			Steps: []spec.Step{{Do: do(applyToService("p", pod("b1"), "db")), Rows: []spec.Row{
				{From: "b1", To: spec.HostAt("db-a2", 8080), Want: denied},
				{From: "b1", To: spec.ClusterIPOf("db", 80), Want: spec.Reply | denied, Servers: []string{"db-a2"},
					Choice: "egress that allows the ClusterIP alone"},
			}}},
		},
	}
}

// servicePaths returns the scenarios of uncommon ways to a Service: from its own pod, through NodePorts, to a node.
func servicePaths() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-own-service", Needs: keepsSource,
			Given: []store.Object{
				db("a1"), Service("alone", Selecting("db"), Port(80, 8080)), echo("two-1", "n1", App("two")),
				echo("two-2", "n1", App("two")),
				Service("two", Port(80, 8080)), policy("p", labels(), ingress()),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "db-a1", To: spec.ClusterIPOf("alone", 80), Times: 3, Want: spec.Reply | denied,
					Servers: []string{"db-a1"},
					Choice:  "a pod that reaches itself through its Service, isolated for ingress"},
				{From: "two-1", To: spec.ClusterIPOf("two", 80), Times: 40, Want: spec.Reply | denied,
					Servers: []string{"two-1"}},
				{From: "two-1", To: spec.HostAt("two-2", 8080), Want: denied},
			}}},
		},
		{
			ID: "np-outside-through-node", Needs: append([]spec.Feature{spec.NodePort}, keepsSource...),
			Given: []store.Object{
				db("a1"), Service("db", Port(80, 8080), NodePort()), echo("closed-1", "n1", App("closed")),
				Service("closed", Port(80, 8080), NodePort()),
				policy("closed", labels("app", "closed"), ingress()),
			},
			Steps: []spec.Step{{Name: "nobody has isolated the pod", Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "db", 80), Servers: []string{"db-a1"}},
				{From: "client", To: spec.NodePortAt("n2", "db", 80), Servers: []string{"db-a1"}},
			}}, {Name: "a rule for the client", Do: do(applyFrom("p", labels("app", "db"), "client")), Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "closed", 80), Want: denied},
				{From: "client", To: spec.NodePortAt("n2", "closed", 80), Want: denied},
				{From: "router", To: spec.NodePortAt("n1", "db", 80), Want: denied},
				{From: "client", To: spec.NodePortAt("n1", "db", 80), Want: spec.Reply | denied, Servers: []string{"db-a1"},
					Choice: "a rule for a client outside, through a NodePort of the pod's own node"},
				{From: "client", To: spec.NodePortAt("n2", "db", 80), Want: spec.Reply | denied, Servers: []string{"db-a1"},
					Choice: "a rule for a client outside, through a NodePort of another node"},
			}}},
		},
		{
			ID: "np-egress-through-node-port", Needs: append([]spec.Feature{spec.NodePort}, keepsSource...),
			Given: four(db("a2"), Service("db", Port(80, 8080), NodePort()), policy("p", pod("a1"), egress())),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.NodePortAt("n1", "db", 80), Want: denied},
				{From: "a1", To: spec.NodePortAt("n2", "db", 80), Want: denied},
				{From: "b1", To: spec.NodePortAt("n1", "db", 80), Servers: []string{"db-a2"}},
			}}},
		},
		{
			ID: "np-service-of-host-network", Needs: keepsSource,
			Given: []store.Object{
				Pod("by-label", "n1"), Pod("by-address", "n1"),
				Pod("api-2", "n2", App("api"), HostNetwork(), TCP(9443)),
				Service("api", Port(443, 9443)),
				policy("by-label", pod("by-label"), egress(allow(pods(labels("app", "api"))))),
			},
			Steps: []spec.Step{{Do: do(applyTo("by-address", pod("by-address"), "n2")), Rows: []spec.Row{
				{From: "by-label", To: spec.ClusterIPOf("api", 443), Want: denied},
				{From: "by-label", To: spec.HostAt("n2", 9443), Want: denied},
				{From: "by-address", To: spec.ClusterIPOf("api", 443), Servers: []string{"api-2"}},
				{From: "by-address", To: spec.HostAt("n2", 9443), Servers: []string{"api-2"}},
			}}},
		},
		{
			ID: "np-own-address", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(), egress())),
			Steps: []spec.Step{step("", nil, open("a1", "a1"), shut("a1", "b1", "b2"), shut("b1", "a1"))},
		},
	}
}

// db is a pod behind the Service db.
func db(at string) store.Object {
	return echo("db-"+at, map[string]string{"a1": "n1", "a2": "n2"}[at], App("db"))
}

// eachService is a Service for each pod, by its label, with its name.
func eachService(names ...string) []store.Object {
	var all []store.Object
	for _, n := range names {
		all = append(all, Service(n, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"pod": n} },
			Port(8080, 8080), UDPPort(8080, 8080)))
	}
	return all
}

// eachWay are rows of each pair of the four pods, by address and through the Service of the one that is asked.
func eachWay() []spec.Row {
	names := []string{"a1", "b1", "b2", "c2"}
	var rows []spec.Row
	for _, from := range names {
		for _, to := range names {
			if from == to {
				continue
			}
			for _, proto := range []string{"tcp", "udp"} {
				r := spec.Row{From: from, Proto: proto, Servers: []string{to}}
				if from == "b1" || to == "c2" || to == "a1" && (from != "b2" || proto != "tcp") {
					r.Want, r.Servers = denied, nil
				}
				byService := r
				r.To, byService.To = spec.HostAt(to, 8080), spec.ClusterIPOf(to, 8080)
				rows = append(rows, r, byService)
			}
		}
	}
	return rows
}

// dns are the scenarios of pods that may ask for names, or not.
func dns() []spec.Scenario {
	return []spec.Scenario{{
		ID: "np-dns", Needs: keepsSource,
		Given: []store.Object{
			echo("a1", "n1"), Pod("like-dns", "n2", App("like-dns"), TCP(server.Port), UDP(server.Port)), DNSServer("d2", "n2"),
			DNS(),
			Service("like-dns", Selecting("like-dns"), Port(server.Port, server.Port), UDPPort(server.Port, server.Port)),
			echo("web-2", "n2", App("web")), Service("web"), policy("deny", pod("a1"), egress()),
		},
		Steps: []spec.Step{
			{Name: "nothing is allowed", Rows: onPort53(spec.Row{Want: denied})},
			{
				Name: "port 53 is allowed", Do: do(Apply(policy("dns", pod("a1"),
					egress(allow().on(corev1.ProtocolUDP, server.Port).on(corev1.ProtocolTCP, server.Port))))),
				Rows: append(onPort53(spec.Row{Servers: []string{"like-dns"}}),
					spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Want: denied},
					spec.Row{From: "a1", To: spec.HostAt("web-2", 8080), Want: denied}),
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return errors.Join(findsOut(ctx, w, "udp", f), findsOut(ctx, w, "tcp", f))
				}),
			},
		},
	}}
}

// onPort53 are rows to a server that tells who asks it, where a DNS server would be: a question that is not answered
// takes as long as a resolver waits.
func onPort53(row spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"udp", "tcp"} {
		row.From, row.To, row.Proto = "a1", spec.ClusterIPOf("like-dns", server.Port), proto
		rows = append(rows, row)
	}
	return rows
}

// findsOut has a1 ask the cluster's DNS for the address of the Service web.
func findsOut(ctx context.Context, w spec.World, proto string, f lab.Family) error {
	from := spec.Must(w.Host("a1"))
	q := server.Question{From: from.NS, Proto: proto, Name: "web." + w.Namespace() + ".svc." + server.Domain,
		Type:   OfFamily(f, dnsmessage.TypeA, dnsmessage.TypeAAAA),
		Server: spec.Must(w.Resolve(spec.ClusterIPOf("kube-dns", server.Port), f, proto))}
	if reply, err := q.Do(ctx); err != nil || len(reply.Records) != 1 {
		return fmt.Errorf("%s: %q %w", q, reply.Records, err)
	}
	return nil
}
