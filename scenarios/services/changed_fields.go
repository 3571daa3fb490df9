// SPDX-License-Identifier: Apache-2.0

package services

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// changedFields returns the scenarios of changes of a live Service that take more than a list of states, or that are to
// change nothing.
func changedFields() []spec.Scenario {
	return []spec.Scenario{appProtocol(), changedFamilies(), externalNameKeepsIPs()}
}

// appProtocol has ports of every kind of application protocol: known ones, one of Kubernetes and one of a domain.
func appProtocol() spec.Scenario {
	names := func(first, second string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports[0].AppProtocol, s.Spec.Ports[1].AppProtocol = ptr.To(first), ptr.To(second)
		}
	}
	rows := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "open", Servers: []string{"a2"}, Port: 8080},
		{From: "c1", To: spec.ClusterIPOf("web", 53), Proto: "udp", Conn: "flow", Servers: []string{"a2"}, Port: 8081},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "outside", Servers: []string{"a2"}, Port: 8080},
		{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}, Port: 8080},
		{From: "client", To: spec.NodePortAt("n1", "web", 53), Proto: "udp", Servers: []string{"a2"}, Port: 8081},
	}
	return spec.Scenario{
		ID: "svc-app-protocol", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)),
			Service("web", NodePort(), Port(80, 8080), UDPPort(53, 8081), names("http", "domain")),
		},
		Steps: []spec.Step{
			{Name: "of the registry", Rows: rows},
			{Name: "of Kubernetes", Do: []spec.Action{Edit("web", names("kubernetes.io/h2c", "kubernetes.io/ws"))}, Rows: rows},
			{Name: "of a domain", Do: []spec.Action{Edit("web", names("example.com/mqtt", "example.com/dns"))}, Rows: rows},
		},
	}
}

// changedFamilies gives a Service a second family and takes it away again. What the Service has in its first family
// goes on undisturbed.
func changedFamilies() spec.Scenario {
	policy := func(to corev1.IPFamilyPolicy, families ...corev1.IPFamily) spec.Action {
		return Edit("web", func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = &to
			if len(families) > 0 {
				s.Spec.IPFamilies, s.Spec.ClusterIPs = families, s.Spec.ClusterIPs[:len(families)]
			}
		})
	}
	const nodePort = 30021
	rows := func(proto string, port uint16, f lab.Family) []spec.Row {
		return inFamily(f,
			spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: proto, Servers: []string{"a2"}, Port: port},
			spec.Row{From: "client", To: spec.HostAt("n1", nodePort), Proto: proto, Servers: []string{"a2"}, Port: port})
	}
	served := func(f lab.Family) []spec.Row { return append(rows("tcp", 8080, f), rows("udp", 8081, f)...) }
	open := inFamily(lab.V4,
		spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "tcp", Servers: []string{"a2"}},
		spec.Row{From: "client", To: spec.HostAt("n1", nodePort), Proto: "udp", Conn: "udp", Servers: []string{"a2"}})
	flow := inFamily(lab.V6,
		spec.Row{From: "client", To: spec.HostAt("n1", nodePort), Proto: "udp", Conn: "second", Servers: []string{"a2"}})
	refused := inFamily(lab.V6, WantRefused(
		spec.Row{From: "client", To: spec.HostAt("n1", nodePort)},
		spec.Row{From: "client", To: spec.HostAt("n1", nodePort), Proto: "udp"})...)
	before := append(append(served(lab.V4), open...), refused...)
	return spec.Scenario{
		ID: "ds-families-change", Families: dualstackBoth, NodePorts: []uint16{nodePort},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)),
			Service("web", NodePort(), Port(80, 8080), UDPPort(80, 8081), onlyV4, NodePorts(nodePort, nodePort)),
		},
		Steps: []spec.Step{
			{Name: "one family", Rows: before},
			{Name: "two families", Do: []spec.Action{policy(corev1.IPFamilyPolicyPreferDualStack)},
				Rows: append(append(append(served(lab.V4), open...), served(lab.V6)...), flow...)},
			{Name: "one family again", Do: []spec.Action{policy(corev1.IPFamilyPolicySingleStack, corev1.IPv4Protocol)},
				Rows: before},
			{Name: "the flow of the second family", Rows: withoutAnswer(flow)},
			{Name: "two families again", Do: []spec.Action{policy(corev1.IPFamilyPolicyRequireDualStack)},
				Rows: append(append(served(lab.V4), open...), served(lab.V6)...)},
		},
	}
}

// withoutAnswer returns the rows as they are once nobody answers them.
func withoutAnswer(rows []spec.Row) []spec.Row {
	var out []spec.Row
	for _, r := range rows {
		r.Want, r.Servers = spec.NotServed, nil
		out = append(out, r)
	}
	return out
}

// externalNameKeepsIPs has a Service whose external IP the router has, too. As an ExternalName it stands for a name and
// serves nothing, so the router is reached.
func externalNameKeepsIPs() spec.Scenario {
	const port = 8162
	ip := ExternalIP(162)
	ip.Port = port
	rows := func(by string) []spec.Row {
		return append(FromEach(spec.Row{To: ip, Servers: []string{by}}, "c1", "n1"),
			spec.Row{From: "c1", To: spec.ClusterIPOf("other", 80), Servers: []string{"a2"}})
	}
	is := func(options ...ServiceOption) spec.Action {
		return Edit("web", turnInto(append(options, ExternalIPs(ip.V4, ip.V6))...))
	}
	return spec.Scenario{
		ID: "svc-change-externalname-ips", Needs: []spec.Feature{spec.ClusterIP, spec.ExternalIPs},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("other", Selecting("web")),
			Service("web", Port(port, 8080), ExternalIPs(ip.V4, ip.V6)),
		},
		Steps: []spec.Step{
			{Name: "ClusterIP", Do: []spec.Action{AddAddress("router", ip.V4, ip.V6), Serve("router", "tcp", port)},
				Rows: rows("a2")},
			{Name: "ExternalName", Do: []spec.Action{is(ExternalName("web.example.com"), Port(port, 8080))},
				Rows: rows("router")},
			{Name: "ClusterIP again", Do: []spec.Action{is(Port(port, 8080), preferDualStack)}, Rows: rows("a2")},
		},
	}
}

// preferDualStack asks for as many families as the cluster has.
func preferDualStack(s *corev1.Service) {
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
}
