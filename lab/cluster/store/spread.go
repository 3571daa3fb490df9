// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// spreadObstacle returns what keeps a pod from a node because of its topologySpreadConstraints, or nothing.
func (tx *Tx) spreadObstacle(n *corev1.Node, p *corev1.Pod) string {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		domain, ok := n.Labels[c.TopologyKey]
		if !ok {
			return "node(s) didn't match pod topology spread constraints (missing required label)"
		}
		counts := tx.domains(c, p)
		least := math.MaxInt
		for _, number := range counts {
			least = min(least, number)
		}
		if len(counts) < int(ptr.Deref(c.MinDomains, 1)) {
			least = 0
		}
		own := 0
		if s := spreadSelector(c, p); s.Matches(labels.Set(p.Labels)) {
			own = 1
		}
		if counts[domain]+own-least > int(c.MaxSkew) {
			return "node(s) didn't match pod topology spread constraints"
		}
	}
	return ""
}

// crowd adds up how many pods the constraints that are only wishes count in the topology of a node.
func (tx *Tx) crowd(n *corev1.Node, p *corev1.Pod) int {
	sum := 0
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable == corev1.ScheduleAnyway {
			sum += tx.domains(c, p)[n.Labels[c.TopologyKey]]
		}
	}
	return sum
}

// domains counts the pods that a constraint selects in each domain: each value of the topology key on nodes that count
// (nodeAffinityPolicy, nodeTaintsPolicy).
func (tx *Tx) domains(c *corev1.TopologySpreadConstraint, p *corev1.Pod) map[string]int {
	out := map[string]int{}
	of := map[string]string{}
	for _, n := range tx.s.nodes.objects {
		domain, ok := n.Labels[c.TopologyKey]
		if !ok ||
			ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor &&
				!isChosen(n, p) ||
			ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor &&
				taintMismatch(n, p) != "" {
			continue
		}
		of[n.Name] = domain
		out[domain] += 0
	}
	selector := spreadSelector(c, p)
	tx.anyPod(func(other *corev1.Pod) bool {
		domain, counts := of[other.Spec.NodeName]
		if counts && other.DeletionTimestamp == nil && other.Namespace == p.Namespace &&
			selector.Matches(labels.Set(other.Labels)) {
			out[domain]++
		}
		return false
	})
	return out
}

// spreadSelector returns what a constraint selects: its labelSelector, with the pod's own values of matchLabelKeys.
func spreadSelector(c *corev1.TopologySpreadConstraint, p *corev1.Pod) labels.Selector {
	selector := c.LabelSelector
	if len(c.MatchLabelKeys) > 0 {
		if selector = selector.DeepCopy(); selector == nil {
			selector = &metav1.LabelSelector{}
		}
		for _, key := range c.MatchLabelKeys {
			if v, ok := p.Labels[key]; ok {
				metav1.AddLabelToSelector(selector, key, v)
			}
		}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return s
}

// attraction adds up the weights of the pods that a pod prefers to be near to, less those that it prefers to be away
// from, in the topology of a node.
func (tx *Tx) attraction(n *corev1.Node, p *corev1.Pod) int {
	a, sum := p.Spec.Affinity, 0
	if a == nil {
		return 0
	}
	if a.PodAffinity != nil {
		for _, t := range a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			sum += int(t.Weight) * tx.near(n, &t.PodAffinityTerm, p)
		}
	}
	if a.PodAntiAffinity != nil {
		for _, t := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			sum -= int(t.Weight) * tx.near(n, &t.PodAffinityTerm, p)
		}
	}
	return sum
}

// near counts the pods that a term of p selects in the topology of a node.
func (tx *Tx) near(n *corev1.Node, t *corev1.PodAffinityTerm, p *corev1.Pod) (count int) {
	tx.anyPod(func(other *corev1.Pod) bool {
		if tx.sameTopology(n, other.Spec.NodeName, t.TopologyKey) && tx.selectsPod(t, p, other) {
			count++
		}
		return false
	})
	return count
}

// isChosen reports whether the nodeSelector and the required node affinity of a pod choose a node.
func isChosen(n *corev1.Node, p *corev1.Pod) bool {
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return matchesTerm(n, &t) })
}
