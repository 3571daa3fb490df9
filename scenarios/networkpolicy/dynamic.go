// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// dynamic are the scenarios of policies, labels, pods and namespaces that change.
func dynamic() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-policy-deleted", Needs: enforced,
			Given: four(policy("deny", labels(), ingress())),
			Steps: []spec.Step{
				step("isolated", nil, shut("a1", "b1", "b2"), shut("c2", "a1")),
				step("the policy is deleted", do(Delete("NetworkPolicy", "deny")), open("a1", "b1", "b2"), open("c2", "a1")),
			},
		},
		{
			ID: "np-allow-becomes-deny", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow()))),
			Steps: []spec.Step{
				step("all is allowed", nil, open("a1", "b1", "b2")),
				step("the rules go", do(Apply(policy("p", pod("a1"), ingress()))), shut("a1", "b1", "b2"), open("b1", "b2")),
			},
		},
		{
			ID: "np-update-port", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolTCP, 8080)))),
			Steps: []spec.Step{
				{Name: "TCP 8080", Rows: fourPorts("tcp", 8080)},
				{
					Name: "UDP 8081", Do: do(Apply(policy("p", pod("a1"),
						ingress(allow(pods(pod("b2"))).on(corev1.ProtocolUDP,
							8081))))),
					Rows: fourPorts("udp", 8081),
				},
			},
		},
		{
			ID: "np-pod-label", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))),
			Steps: []spec.Step{
				step("no pod has the label", nil, shut("a1", "b1", "b2")),
				step("b2 gets it", do(label("b2", "new", "1")), open("a1", "b2"), shut("a1", "b1", "c2")),
				step("b2 loses it", do(label("b2", "new", "")), shut("a1", "b1", "b2")),
			},
		},
		{
			ID: "np-target-label", Needs: enforced,
			Given: four(policy("p", labels("isolated", "1"), ingress(), egress())),
			Steps: []spec.Step{
				step("no pod has the label", nil, open("a1", "b1", "b2"), open("b2", "a1")),
				step("a1 gets it", do(label("a1", "isolated", "1")), shut("a1", "b1", "b2"), shut("b2", "a1"),
					open("b1", "b2")),
				step("a1 loses it", do(label("a1", "isolated", "")), open("a1", "b1", "b2"), open("b2", "a1")),
			},
		},
		namespaceLabel(), newNamespace(),
	}
}

// replaced returns the scenarios of policies and pods of which others take the place.
func replaced() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-new-pod", Needs: enforced,
			Given: four(policy("p", labels(), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				step("d1 is there", do(Apply(echo("d1", "n1"), echo("d3", "n3"))), shut("d1", "b1", "c2"),
					shut("d3", "b1", "c2"),
					open("d1", "b2"), open("d3", "b2")),
				step("d1 is gone", do(Delete("Pod", "d1")), open("a1", "b2"), shut("a1", "b1")),
			},
		},
		{
			ID: "np-union-shrinks", Needs: enforced,
			Given: four(
				policy("for-b1", pod("a1"), ingress(allow(pods(pod("b1"))))),
				policy("for-b2", pod("a1"), ingress(allow(pods(pod("b2"))))),
			),
			Steps: []spec.Step{
				step("both", nil, open("a1", "b1", "b2"), shut("a1", "c2")),
				step("one is deleted", do(Delete("NetworkPolicy", "for-b1")), open("a1", "b2"), shut("a1", "b1", "c2")),
			},
		},
		{
			ID: "np-target-moves", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress())),
			Steps: []spec.Step{
				step("a1", nil, shut("a1", "b1", "c2"), open("b2", "b1", "c2")),
				step("b2", do(edit("p", func(s *networkingv1.NetworkPolicySpec) { s.PodSelector = pod("b2") })),
					open("a1", "b1", "c2"), shut("b2", "b1", "c2")),
			},
		},
		{
			ID: "np-types-change", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress())),
			Steps: []spec.Step{
				step("ingress", nil, shut("a1", "b1", "b2"), open("b2", "a1")),
				step("egress", do(Apply(policy("p", pod("a1"), egress()))), open("a1", "b1", "b2"), shut("b2", "a1")),
			},
		},
		{
			ID: "np-policy-replaced", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b1")))))),
			Steps: []spec.Step{
				step("the first", nil, open("a1", "b1"), shut("a1", "b2")),
				step("the second", do(Delete("NetworkPolicy", "p"), Apply(policy("q", pod("a1"), ingress(allow(pods(pod("b2"))))))),
					open("a1", "b2"), shut("a1", "b1")),
			},
		},
		{
			ID: "np-pod-recreated", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				step("before", nil, open("a1", "b2"), shut("a1", "c2")),
				step("b2 goes, and others come first", do(Delete("Pod", "b2"),
					Apply(echo("d2", "n2"), echo("e2", "n2"), echo("f2", "n2"))),
					shut("a1", "c2", "d2", "e2", "f2")),
				step("b2 comes back", do(Apply(echo("b2", "n2"))), open("a1", "b2"),
					shut("a1", "c2", "d2", "e2", "f2")),
			},
		},
		{
			ID: "np-late-target", Needs: enforced,
			Given: four(policy("p", pod("late"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				step("nobody is selected", nil, open("a1", "b1", "b2")),
				step("late is there", do(Apply(echo("late", "n1"))), open("late", "b2"), shut("late", "b1", "c2"), open("a1",
					"b1")),
			},
		},
	}
}

// fourPorts returns rows from b2 to each port of a1, of which one is open, and one row from another sender.
func fourPorts(proto string, port uint16) []spec.Row {
	var rows []spec.Row
	for _, p := range []string{"tcp", "udp"} {
		for _, number := range []uint16{8080, 8081} {
			r := spec.Row{From: "b2", To: spec.HostAt("a1", number), Proto: p, Want: denied}
			if p == proto && number == port {
				r.Want, r.Servers = spec.Reply, []string{"a1"}
			}
			rows = append(rows, r)
		}
	}
	return append(rows, spec.Row{From: "c2", To: spec.HostAt("a1", port), Proto: proto, Want: denied})
}

func namespaceLabel() spec.Scenario {
	const far = "np-namespace-label-far"
	return spec.Scenario{
		ID: "np-namespace-label", Needs: enforced,
		Given: four(
			Namespace(far, nil), echo("b2", "n2", In(far)), echo("b1", "n1", In(far)), echo("c2", "n2", In(far)),
			policy("p", pod("a1"), ingress(allow(podsIn(labels("new", "1"), pod("b1")), podsIn(labels("new", "1"), pod("b2"))))),
		),
		Steps: []spec.Step{
			step("no namespace has the label", nil, shut("a1", far+"/b1", far+"/b2", far+"/c2", "b2")),
			step("one gets it", do(labelNamespace(far, "new", "1")), open("a1", far+"/b1", far+"/b2"),
				shut("a1", far+"/c2", "b2")),
			step("it loses it", do(labelNamespace(far, "new", "")), shut("a1", far+"/b1", far+"/b2", far+"/c2")),
		},
	}
}

func newNamespace() spec.Scenario {
	const far = "np-new-namespace-far"
	made := []store.Object{Namespace(far, map[string]string{"kind": "friend"}), echo("b1", "n1", In(far)),
		echo("b2", "n2", In(far))}
	return spec.Scenario{
		ID: "np-new-namespace", Needs: enforced,
		Given: four(policy("p", pod("a1"), ingress(allow(podsIn(labels("kind", "friend"), labels()))))),
		Steps: []spec.Step{
			step("it is there", do(Apply(made...)), open("a1", far+"/b1", far+"/b2"), shut("a1", "b1", "b2")),
			step("it is gone, and one of its name comes", do(deleteNamespace(far), Apply(
				Namespace(far, map[string]string{"kind": "stranger"}), echo("b1", "n1", In(far)), echo("b2", "n2", In(far)),
			)), shut("a1", far+"/b1", far+"/b2")),
		},
	}
}
