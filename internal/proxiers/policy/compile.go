// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Compiler compiles the policies of a cluster for a node. The zero value with a Node is ready.
type Compiler struct {
	Node string

	state      *State // of the objects that follow
	namespaces []*corev1.Namespace
	pods       []*corev1.Pod
	policies   []*networkingv1.NetworkPolicy
}

// Compile returns the state for a snapshot. It returns the same state if nothing that it depends on has changed.
func (c *Compiler) Compile(s *store.Snapshot) *State {
	if c.state != nil && slices.Equal(c.namespaces, s.Namespaces) && slices.Equal(c.pods, s.Pods) &&
		slices.Equal(c.policies, s.NetworkPolicies) {
		return c.state
	}
	c.namespaces, c.pods, c.policies = s.Namespaces, s.Pods, s.NetworkPolicies
	c.state = compile(c.Node, newCluster(s.Namespaces, s.Pods), s.NetworkPolicies)
	return c.state
}

func compile(node string, all *cluster, policies []*networkingv1.NetworkPolicy) *State {
	state := &State{}
	of := map[*member]*Pod{}
	for _, m := range all.pods {
		if m.Spec.NodeName == node {
			of[m] = &Pod{Namespace: m.Namespace, Name: m.Name, Account: cmp.Or(m.Spec.ServiceAccountName, "default"),
				Addrs: m.addrs}
			state.Pods = append(state.Pods, of[m])
		}
	}
	for _, np := range policies {
		targets := slices.DeleteFunc(all.targets(np), func(m *member) bool { return of[m] == nil })
		if len(targets) == 0 {
			continue
		}
		for _, d := range directions(np) {
			allows := rules{all, np, targets}.allows(d)
			p := &Policy{Direction: d, Namespace: np.Namespace, Name: np.Name, Allows: allows}
			state.Policies = append(state.Policies, p)
			for _, m := range targets {
				of[m].isolate(p)
			}
		}
	}
	slices.SortStableFunc(state.Policies, func(a, b *Policy) int { return -cmp.Compare(a.Direction, b.Direction) })
	return state
}

func (p *Pod) isolate(by *Policy) {
	if by.Direction == Egress {
		p.Egress = append(p.Egress, by)
	} else {
		p.Ingress = append(p.Ingress, by)
	}
}

// targets returns the pods that a policy isolates.
func (c *cluster) targets(np *networkingv1.NetworkPolicy) []*member {
	return c.pick(only(np.Namespace), selector(&np.Spec.PodSelector))
}

func only(namespace string) func(string) bool {
	return func(ns string) bool { return ns == namespace }
}

// selector converts a selector. An invalid one selects nothing, so that it does not open anything.
func selector(s *metav1.LabelSelector) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return sel
}

// directions returns the directions in which a policy isolates. An API server would set them if they are missing.
func directions(np *networkingv1.NetworkPolicy) []Direction {
	types := np.Spec.PolicyTypes
	var out []Direction
	if len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress) {
		out = append(out, Ingress)
	}
	if len(types) == 0 && len(np.Spec.Egress) > 0 || slices.Contains(types, networkingv1.PolicyTypeEgress) {
		out = append(out, Egress)
	}
	return out
}
