package faults

import (
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab/kube"
)

// toldOfPolicies are faults in what enforcers are told of network policies.
var toldOfPolicies = []Fault{
	{
		Name: "policies-forgotten", Breaks: "No pod is isolated, whatever policies there are.",
		Rows: []string{
			"np-via-service", "np-per-pod-after-dnat", "np-masqueraded-sources", "np-egress-after-dnat", "np-own-address",
			"np-policy-deleted", "np-allow-becomes-deny", "np-update-port", "np-pod-label", "np-target-label",
			"np-namespace-label", "np-new-namespace", "np-new-pod", "np-union-shrinks", "np-target-moves", "np-types-change",
			"np-policy-replaced", "np-pod-recreated", "np-late-target", "np-replies-pass", "np-pinhole-one-way",
			"np-denied-flow-opens", "np-connection-outlasts-updates", "np-own-node", "np-host-network-pod", "np-egress-to-node",
		},
		State: see(func(o kube.Object) kube.Object {
			if _, ok := o.(*networkingv1.NetworkPolicy); ok {
				return nil
			}
			return o
		}),
	},
	{
		Name: "policy-rules-lost", Breaks: "A policy isolates its pods, and allows nothing.",
		Rows: []string{
			"np-via-service", "np-per-pod-after-dnat", "np-masqueraded-sources", "np-egress-after-dnat", "np-allow-becomes-deny",
			"np-update-port", "np-pod-label", "np-namespace-label", "np-new-namespace", "np-new-pod", "np-union-shrinks",
			"np-policy-replaced", "np-pod-recreated", "np-late-target", "np-pinhole-one-way", "np-denied-flow-opens",
			"np-connection-outlasts-updates",
		},
		State: policies(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress, p.Spec.Egress = nil, nil
		}),
	},
	{
		Name: "policy-ports-lost", Breaks: "What a policy allows on one port is allowed on all of them.",
		Rows: []string{"np-update-port", "np-egress-after-dnat"},
		State: policies(func(p *networkingv1.NetworkPolicy) {
			for i := range p.Spec.Ingress {
				p.Spec.Ingress[i].Ports = nil
			}
			for i := range p.Spec.Egress {
				p.Spec.Egress[i].Ports = nil
			}
		}),
	},
	{
		Name: "policy-update-missed", Breaks: "A policy stays as it was when it was first seen.",
		Rows: []string{"np-allow-becomes-deny", "np-update-port", "np-target-moves", "np-types-change", "np-denied-flow-opens"},
		State: remembering(func(first, now *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
			if first == nil || first.UID != now.UID {
				return now
			}
			first = first.DeepCopy()
			first.ResourceVersion = now.ResourceVersion
			return first
		}),
	},
}

// policies is a State that changes every NetworkPolicy.
func policies(change func(*networkingv1.NetworkPolicy)) func() func(kube.Object) kube.Object {
	return copied(change)
}
