// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAffinity(t *testing.T) {
	s := newTestStore(t, Config{})
	for name, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
		n := newNode(name, zone)
		n.Labels[corev1.LabelHostname] = name
		apply(t, s, n)
	}
	pod := func(name string, a *corev1.Affinity) *corev1.Pod {
		p := newPod(name, "", app(name[:1]))
		p.Spec.Affinity = a
		return p
	}
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
		}}
	}
	term := func(key, name string) []corev1.PodAffinityTerm {
		return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: app(name)}}}
	}
	apart := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: term(corev1.LabelHostname, "a")}}
	for _, step := range []struct {
		pod  *corev1.Pod
		want string // the node, or the reason
	}{
		{pod("required", &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{in(corev1.LabelTopologyZone, "c"), in(corev1.LabelTopologyZone, "b")},
			}}}), "n3"},
		{pod("nowhere", &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{in(corev1.LabelTopologyZone, "c")},
			}}}), "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."},
		{pod("prefers", &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 5, Preference: in(corev1.LabelHostname, "n3")}}}}), "n3"},
		{pod("a1", apart), "n1"},
		{pod("a2", apart), "n2"},
		{pod("a3", apart), "n3"},
		{pod("a4", apart), "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."},
		{pod("a5", nil), "0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules."},
		{pod("c1", &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term(corev1.LabelTopologyZone, "r")}}), "n3"},
		{pod("d1", &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term(corev1.LabelTopologyZone, "d")}}), "n1"},
	} {
		apply(t, s, step.pod)
		p := get[*corev1.Pod](t, s, step.pod.Name)
		got := p.Spec.NodeName
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == "Unschedulable" {
				got = c.Message
			}
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", p.Name, got, step.want)
		}
	}
	if err := s.Delete(KindPod, "default", "a2"); err != nil { // its place is taken at once
		t.Fatal(err)
	}
	if p := get[*corev1.Pod](t, s, "a4"); p.Spec.NodeName != "n2" || strings.Contains(conditionsOf(p), "Unschedulable") {
		t.Errorf("a4 is on %q: %s", p.Spec.NodeName, conditionsOf(p))
	}
}

func conditionsOf(p *corev1.Pod) (out string) {
	for _, c := range p.Status.Conditions {
		out += string(c.Type) + "=" + string(c.Status) + " " + c.Reason + " "
	}
	return out
}

func TestHostPorts(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	with := func(name, ip string, port int32) *corev1.Pod {
		p := newPod(name, "", nil)
		p.Spec.Containers[0].Ports[0].HostPort, p.Spec.Containers[0].Ports[0].HostIP = port, ip
		return p
	}
	apply(t, s, with("a", "", 80), with("b", "", 81))
	apply(t, s, with("c", "10.0.0.1", 80))
	if p := get[*corev1.Pod](t, s, "c"); p.Spec.NodeName != "" || !strings.Contains(p.Status.Conditions[0].Message,
		"1 node(s) didn't have free ports for the requested pod ports") {
		t.Errorf("got %+v", p)
	}
	if err := s.Delete(KindPod, "default", "a"); err != nil {
		t.Fatal(err)
	}
	apply(t, s, with("d", "10.0.0.2", 80))
	for _, name := range []string{"b", "c", "d"} {
		if p := get[*corev1.Pod](t, s, name); p.Spec.NodeName != "n1" {
			t.Errorf("%s is not on n1", name)
		}
	}
}

func TestSpread(t *testing.T) {
	s := newTestStore(t, Config{})
	for name, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "b", "n4": ""} {
		n := newNode(name, zone)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[corev1.LabelHostname] = name
		apply(t, s, n)
	}
	spread := func(when corev1.UnsatisfiableConstraintAction) []corev1.TopologySpreadConstraint {
		return []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: app("w")}}}
	}
	near := func(weight int32) *corev1.PodAffinity {
		return &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: app("w")}}}}}
	}
	zones := map[string]string{"n1": "a", "n2": "a", "n3": "b", "n4": "none"}
	for _, step := range []struct {
		name, want string // the zone or the reason
		change     func(*corev1.PodSpec)
	}{
		{"w1", "b", func(p *corev1.PodSpec) { p.NodeName = "n3" }},
		{"w2", "a", func(p *corev1.PodSpec) { p.TopologySpreadConstraints = spread(corev1.DoNotSchedule) }},
		{"w3", "a", func(p *corev1.PodSpec) { p.NodeName = "n1" }},
		{"w4", "b", func(p *corev1.PodSpec) { p.TopologySpreadConstraints = spread(corev1.DoNotSchedule) }},
		{"w5", "a", func(p *corev1.PodSpec) { p.NodeName = "n1" }},
		{"x1", "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), " +
			"3 node(s) were unschedulable.", nil},
		{"w6", "none", func(p *corev1.PodSpec) { p.TopologySpreadConstraints = spread(corev1.ScheduleAnyway) }},
		{"y1", "a", func(p *corev1.PodSpec) { p.Affinity = &corev1.Affinity{PodAffinity: near(10)} }},
		{"y2", "none", func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near(9).
				PreferredDuringSchedulingIgnoredDuringExecution}, NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
						Values: []string{"n1", "n4"}}}}}}}}
		}},
	} {
		p := newPod(step.name, "", app(step.name[:1]))
		if step.change == nil { // spread over closed nodes
			for _, n := range []string{"n1", "n2", "n3"} {
				if err := Update(s, "", n, func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
					t.Fatal(err)
				}
			}
			p.Spec.TopologySpreadConstraints = spread(corev1.DoNotSchedule)
		} else {
			step.change(&p.Spec)
		}
		apply(t, s, p)
		p = get[*corev1.Pod](t, s, step.name)
		got := zones[p.Spec.NodeName]
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				got = c.Message
			}
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", p.Name, got, step.want)
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			if err := Update(s, "", n, func(n *corev1.Node) { n.Spec.Unschedulable = false }); err != nil {
				t.Fatal(err)
			}
		}
		if step.change == nil {
			deleteWith(t, s, KindPod, step.name, DeleteOptions{})
		}
	}
}
