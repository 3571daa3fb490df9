// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// matchesTerm reports whether a node meets all requirements of a term. A term without any matches nothing.
func matchesTerm(n *corev1.Node, t *corev1.NodeSelectorTerm) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for _, e := range t.MatchExpressions {
		if !meets(labels.Set(n.Labels), e) {
			return false
		}
	}
	for _, e := range t.MatchFields {
		if !meets(labels.Set{"metadata.name": n.Name}, e) {
			return false
		}
	}
	return true
}

var nodeOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

func meets(l labels.Set, e corev1.NodeSelectorRequirement) bool {
	r, err := labels.NewRequirement(e.Key, nodeOperators[e.Operator], e.Values)
	return err == nil && r.Matches(l)
}

// awayFromPods returns what keeps a pod from a node because of the pods that run there or in the same topology, or
// nothing: the pod's own affinity and anti-affinity, and the anti-affinity of the others.
func (tx *Tx) awayFromPods(n *corev1.Node, p *corev1.Pod) string {
	own := p.Spec.Affinity
	if own != nil && own.PodAffinity != nil {
		for _, t := range own.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			first := !tx.anyPod(func(other *corev1.Pod) bool { return tx.selectsPod(&t, p, other) }) &&
				tx.selectsPod(&t, p, p) // the first of a group that wants to be together may go anywhere
			if !first && !tx.isNear(n, &t, p) {
				return "node(s) didn't match pod affinity rules"
			}
		}
	}
	if own != nil && own.PodAntiAffinity != nil {
		for _, t := range own.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if tx.isNear(n, &t, p) {
				return "node(s) didn't match pod anti-affinity rules"
			}
		}
	}
	if tx.s.index.shy > 0 && tx.anyPod(func(other *corev1.Pod) bool {
		a := other.Spec.Affinity
		return a != nil && a.PodAntiAffinity != nil && slices.ContainsFunc(
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool {
				return tx.selectsPod(&t, other, p) && tx.sameTopology(n, other.Spec.NodeName, t.TopologyKey)
			})
	}) {
		return "node(s) didn't satisfy existing pods anti-affinity rules"
	}
	return ""
}

// anyPod reports whether there is a pod with a node, not ended, of which is says so.
func (tx *Tx) anyPod(is func(*corev1.Pod) bool) bool {
	for _, p := range tx.s.pods.objects {
		if p.Spec.NodeName != "" && !isOver(p) && is(p) {
			return true
		}
	}
	return false
}

// isNear reports whether a pod that the term of p selects runs in the topology of a node.
func (tx *Tx) isNear(n *corev1.Node, t *corev1.PodAffinityTerm, p *corev1.Pod) bool {
	return tx.anyPod(func(other *corev1.Pod) bool {
		return tx.sameTopology(n, other.Spec.NodeName, t.TopologyKey) && tx.selectsPod(t, p, other)
	})
}

func (tx *Tx) sameTopology(n *corev1.Node, other, key string) bool {
	m := tx.s.nodes.objects[Key{"", other}]
	v, ok := n.Labels[key]
	return n.Name == other && (ok || key == corev1.LabelHostname) || m != nil && ok && m.Labels[key] == v
}

// selectsPod reports whether the term of a pod selects another.
func (tx *Tx) selectsPod(t *corev1.PodAffinityTerm, of, other *corev1.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || !s.Matches(labels.Set(other.Labels)) {
		return false
	}
	if t.NamespaceSelector == nil {
		if len(t.Namespaces) == 0 {
			return of.Namespace == other.Namespace
		}
		return slices.Contains(t.Namespaces, other.Namespace)
	}
	if slices.Contains(t.Namespaces, other.Namespace) {
		return true
	}
	ns := tx.s.namespaces.objects[Key{"", other.Namespace}]
	s, err = metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	return err == nil && ns != nil && s.Matches(labels.Set(ns.Labels))
}
