// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// recreated returns the scenarios of policies and namespaces that are deleted and made again under their names.
func recreated() []spec.Scenario {
	const far = "np-namespace-recreated-far"
	world := []store.Object{Namespace(far, nil), echo("a1", "n1", In(far)), echo("b1", "n1", In(far))}
	return []spec.Scenario{
		{
			ID: "np-policy-recreated", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b1")))))),
			Steps: []spec.Step{
				step("the first", nil, open("a1", "b1"), shut("a1", "b2", "c2")),
				step("another rule", again(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
					open("a1", "b2"), shut("a1", "b1", "c2")),
				step("another direction", again(policy("p", pod("a1"), egress())),
					open("a1", "b1", "b2", "c2"), shut("b2", "a1")),
				step("another pod", again(policy("p", pod("b1"), ingress())), open("a1", "b2"), open("b2", "a1"),
					shut("b1", "a1", "c2")),
			},
		},
		{
			ID: "np-namespace-recreated", Needs: enforced,
			Given: append(four(in(far, policy("p", labels(), ingress()))), world...),
			Steps: []spec.Step{
				step("isolated", nil, shut(far+"/a1", far+"/b1", "b1", "b2")),
				step("again, without a policy", do(deleteNamespace(far), Apply(world...)),
					open(far+"/a1", far+"/b1", "b1", "b2")),
				step("again, with another one of its name", do(deleteNamespace(far),
					Apply(append(world, in(far, policy("p", pod("a1"), ingress(allow(pods(pod("b1")))))))...)),
					open(far+"/a1", far+"/b1"), shut(far+"/a1", "b1", "b2"), open(far+"/b1", "b1", "b2")),
			},
		},
	}
}

// again deletes a policy and makes it again under its name, without a pause.
func again(p *networkingv1.NetworkPolicy) []spec.Action {
	return do(Delete("NetworkPolicy", p.Name), Apply(p))
}

// in puts a policy into a namespace other than the scenario's default one.
func in(namespace string, p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	p.Namespace = namespace
	return p
}

// latePods returns the scenarios of rules whose peers, targets and named ports come later.
func latePods() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-blocks-and-selectors", Needs: enforced,
			Given: four(policy("p", labels("app", "target"), ingress(allow(block("0.0.0.0/0"), block("::/0"),
				pods(labels("app", "friend"))).on(corev1.ProtocolTCP, 8080)))),
			Steps: []spec.Step{
				step("pods come later", do(Apply(echo("t1", "n1", App("target")), echo("f2", "n2", App("friend")))),
					onTCPAlone("t1", "b1", "b2", "f2")),
				step("others come", do(Apply(echo("t3", "n3", App("target")), echo("d2", "n2"))),
					onTCPAlone("t1", "d2"), onTCPAlone("t3", "b1", "b2", "f2", "d2")),
				step("the blocks leave out b2 and f2", do(applyExcept("p", "b2", "f2"), Apply(echo("e1", "n1"))),
					open("t1", "f2", "c2", "e1"), shut("t1", "b2"), open("t3", "f2", "e1"), shut("t3", "b2")),
			},
		},
		{
			ID: "np-late-named-ports", Needs: enforced,
			Given: four(policy("p", pod("a1"), egress(allow().onNamed("web")))),
			Steps: []spec.Step{
				step("nobody has such a port", nil, shut("b2", "a1"), open("b2", "b1")),
				step("two pods call different ports so", do(Apply(Pod("d2", "n2", Named("web", 8090), TCP(8091)),
					Pod("d3", "n3", TCP(8090), Named("web", 8091)))), namedPort("d2", 8090, 8091),
					namedPort("d3", 8091, 8090), shut("b2", "a1")),
				step("another pod calls it otherwise", do(Delete("Pod", "d2"),
					Apply(Pod("e2", "n2", Named("www", 8090), TCP(8091)))), []spec.Row{
					{From: "a1", To: spec.HostAt("e2", 8090), Want: denied},
					{From: "b1", To: spec.HostAt("e2", 8090), Servers: []string{"e2"}},
				}, namedPort("d3", 8091, 8090)),
			},
		},
		{
			ID: "np-port-ranges", Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1", UDP(8082), SCTP(8080)), echo("b1", "n1", SCTP(8080)), echo("b2", "n2"), echo("c2", "n2"),
				policy("udp", pod("a1"), ingress(allow().onRange(corev1.ProtocolUDP, 8080, 8081))),
				policy("sctp", pod("a1"), ingress(allow(pods(pod("b2"))).onRange(corev1.ProtocolSCTP, 8079, 8080))),
				policy("above", pod("b1"), ingress(allow().onRange(corev1.ProtocolSCTP, 8081, 65535).
					on(corev1.ProtocolTCP, 8080))),
			},
			Steps: []spec.Step{
				{Name: "UDP 8080 to 8081", Rows: udpRange(8080, 8081, 8082), Check: EachFamily(associates)},
				{Name: "UDP 8081 to 8082", Do: do(edit("udp", func(s *networkingv1.NetworkPolicySpec) {
					s.Ingress[0].Ports = allow().onRange(corev1.ProtocolUDP, 8081, 8082).ports
				})), Rows: udpRange(8081, 8082, 8080)},
			},
		},
	}
}

// onTCPAlone are rows of senders whom a pod answers over TCP, and not over UDP.
func onTCPAlone(to string, from ...string) []spec.Row {
	rows := open(to, from...)
	for i, r := range rows {
		if r.Proto == "udp" {
			rows[i].Want, rows[i].Servers = denied, nil
		}
	}
	return rows
}

// applyExcept lets friends come to the targets, and everybody else but the hosts.
func applyExcept(name string, hosts ...string) spec.Action {
	return NewAction("apply "+name, func(w spec.World) error {
		except := map[lab.Family][]string{}
		for _, a := range addrsOf(w, hosts) {
			f := lab.FamilyOf(a)
			except[f] = append(except[f], netip.PrefixFrom(a, a.BitLen()).String())
		}
		return w.Apply(policy(name, labels("app", "target"), ingress(allow(block("0.0.0.0/0", except[lab.V4]...),
			block("::/0", except[lab.V6]...), pods(labels("app", "friend"))))))
	})
}

// namedPort are rows from a1, who may use the port, and not the other one.
func namedPort(to string, named, other uint16) []spec.Row {
	return []spec.Row{
		{From: "a1", To: spec.HostAt(to, named), Servers: []string{to}},
		{From: "a1", To: spec.HostAt(to, other), Want: denied},
		{From: "b1", To: spec.HostAt(to, other), Servers: []string{to}},
	}
}

// udpRange are rows to the first and the last UDP port of a range, which a1 serves, to one outside of it, and over TCP.
func udpRange(first, last, outside uint16) []spec.Row {
	return []spec.Row{
		{From: "b2", To: spec.HostAt("a1", first), Proto: "udp", Servers: []string{"a1"}},
		{From: "c2", To: spec.HostAt("a1", last), Proto: "udp", Servers: []string{"a1"}},
		{From: "b2", To: spec.HostAt("a1", outside), Proto: "udp", Want: denied},
		{From: "b2", To: spec.HostAt("a1", 8081), Want: denied},
	}
}
