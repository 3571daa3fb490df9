// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// policyFaults break what enforcers see of NetworkPolicies.
var policyFaults = []Fault{
	{
		Name: "policies-forgotten", Breaks: "No pod is isolated, whatever policies there are.",
		Scenarios: []string{
			"np-via-service", "np-per-pod-after-dnat", "np-masqueraded-sources", "np-egress-after-dnat", "np-own-address",
			"np-policy-deleted", "np-allow-becomes-deny", "np-update-port", "np-pod-label", "np-target-label",
			"np-namespace-label", "np-new-namespace", "np-new-pod", "np-union-shrinks", "np-target-moves", "np-types-change",
			"np-policy-replaced", "np-pod-recreated", "np-late-target", "np-replies-pass", "np-pinhole-one-way",
			"np-denied-flow-opens", "np-connection-outlasts-updates", "np-own-node", "np-host-network-pod", "np-egress-to-node",
			"np-completed-pod", "np-address-passed-on", "np-pending-pod", "np-named-port-moves", "np-order-independent",
			"np-label-flips", "np-open-connection-denied", "np-unanswered-flow-denied", "np-segment-of-no-connection",
			"np-services-same-verdicts", "np-backend-denied", "np-named-target-port", "np-block-of-service", "np-own-service",
			"np-outside-through-node", "np-egress-through-node-port", "np-service-of-host-network", "np-dns",
			"np-egress-to-own-node", "np-node-is-no-pod", "np-spoofed-pod", "np-spoofed-node", "np-marks-of-pods",
			"np-block-of-one-family", "np-neighbour-discovery", "np-isolated-from-birth", "np-terminating-pods",
			"np-enforcer-restarts", "np-change-while-away", "np-proxier-comes-later", "np-enforcer-leaves",
			"np-forward-policy-drop", "np-reapplied", "np-others-come-and-go", "np-members-change", "np-policy-handed-over",
			"np-large-set-rewritten", "np-once-closed", "np-many-pods", "np-nothing-piles-up", "np-many-policies",
			"np-many-blocks", "np-calico-workload-chain", "np-host-port", "np-source-port", "np-fragments",
			"np-errors-come-back",
			"np-narrow-path", "np-sctp", "np-same-ports-again", "np-connection-outlasts-policy", "np-forgotten-flow",
			"np-long-names", "np-label-values", "np-initializing-pod", "np-hundred-pods", "np-programming-latency",
			"np-tunnels-of-pods", "np-own-node-any-user", "np-neighbours-judged-twice", "np-label-churn", "np-killed-midway",
		},
		State: see(func(o store.Object) store.Object {
			if _, ok := o.(*networkingv1.NetworkPolicy); ok {
				return nil
			}
			return o
		}),
	},
	{
		Name: "policy-rules-lost", Breaks: "A policy isolates its pods, and allows nothing.",
		Scenarios: []string{
			"np-via-service", "np-per-pod-after-dnat", "np-masqueraded-sources", "np-egress-after-dnat", "np-allow-becomes-deny",
			"np-update-port", "np-pod-label", "np-namespace-label", "np-new-namespace", "np-new-pod", "np-union-shrinks",
			"np-policy-replaced", "np-pod-recreated", "np-late-target", "np-pinhole-one-way", "np-denied-flow-opens",
			"np-connection-outlasts-updates", "np-pending-pod", "np-terminating-pods", "np-many-blocks",
			"np-large-set-rewritten",
		},
		State: policies(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress, p.Spec.Egress = nil, nil
		}),
	},
	{
		Name: "policy-ports-lost", Breaks: "What a policy allows on one port is allowed on all of them.",
		Scenarios: []string{"np-update-port", "np-egress-after-dnat", "np-dns", "np-named-port-moves", "np-named-target-port",
			"np-services-same-verdicts", "np-source-port", "np-fragments"},
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
		Scenarios: []string{"np-allow-becomes-deny", "np-update-port", "np-target-moves", "np-types-change",
			"np-denied-flow-opens", "np-change-while-away", "np-many-policies"},
		State: remembering(func(first, now *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
			if first == nil || first.UID != now.UID {
				return now
			}
			first = first.DeepCopy()
			first.ResourceVersion = now.ResourceVersion
			return first
		}),
	},
	{
		Name: "policies-lapse", Breaks: "A policy that is written anew counts for nothing until it is written once more.",
		Scenarios: []string{"np-reapplied", "np-large-set-rewritten", "np-killed-midway", "np-allow-becomes-deny"},
		State: func() func(store.Object) store.Object {
			versions := map[store.Key]int{}
			return see(func(o store.Object) store.Object {
				p, ok := o.(*networkingv1.NetworkPolicy)
				if !ok {
					return o
				}
				key := store.KeyOf(p)
				if versions[key]++; versions[key]%2 == 0 {
					return nil
				}
				return o
			})()
		},
	},
	{
		Name: "policy-blocks-lost", Breaks: "Peers that are blocks of addresses are passed over.",
		Scenarios: []string{"np-masqueraded-sources", "np-many-blocks", "np-block-of-one-family",
			"np-service-of-host-network",
			"np-node-is-no-pod"},
		State: policies(func(p *networkingv1.NetworkPolicy) {
			isBlock := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }
			noPod := &metav1.LabelSelector{MatchLabels: map[string]string{"no-pod": "has-this"}}
			nobody := networkingv1.NetworkPolicyPeer{PodSelector: noPod}
			for i, r := range p.Spec.Ingress {
				if slices.ContainsFunc(r.From, isBlock) {
					p.Spec.Ingress[i].From = append(slices.DeleteFunc(r.From, isBlock), nobody)
				}
			}
			for i, r := range p.Spec.Egress {
				if slices.ContainsFunc(r.To, isBlock) {
					p.Spec.Egress[i].To = append(slices.DeleteFunc(r.To, isBlock), nobody)
				}
			}
		}),
	},
	{
		Name: "pod-labels-missed", Breaks: "For policies a pod has the labels that it had at first.",
		Scenarios: []string{"np-pod-label", "np-target-label", "np-label-flips", "np-label-churn"},
		State: remembering(func(first, now *corev1.Pod) *corev1.Pod {
			if first == nil || first.UID != now.UID {
				return now
			}
			now = now.DeepCopy()
			now.Labels = first.Labels
			return now
		}),
	},
}

// policyRules are faults in what enforcers write.
var policyRules = []Fault{
	{
		Name: "new-pods-open", Breaks: "What is sent to a pod of which the enforcer has not been told yet is let through.",
		Scenarios: []string{"np-isolated-from-birth"},
		Text: []Rewrite{
			{XTables, `^-A cali-(to|from)-wl-dispatch .*Unknown interface.*-j DROP`, ""},
			{NFT, `^add rule inet network-policy (in|e)gress .*"DP[IE]\|unknown pod".*`, ""},
		},
	},
	{
		Name: "pod-sources-unchecked", Breaks: "A pod may send from any address.",
		Scenarios: []string{"np-spoofed-pod"},
		Text: []Rewrite{
			{XTables, `^-A cali-PREROUTING .*rpfilter.*-j DROP`, ""},
			{NFT, `^add rule \S+ network-policy sources .*@ports.*`, ""},
		},
	},
	{
		Name: "egress-is-final", Breaks: "What a policy lets a pod send is not judged for the pods of its own node.",
		Scenarios: []string{"np-neighbours-judged-twice"},
		Text: []Rewrite{
			{XTables, `^(-A cali-po-\S+ .*)-j MARK --set-xmark 0x10000/0x10000$`, "$1-j ACCEPT"},
			{NFT, `^(add rule inet network-policy egress-by-\S+ (?:.* )?)accept( comment .*)?$`,
				"${1}meta mark set 0x1 accept$2"},
			{NFT, `^(add rule inet network-policy ingress) (ct state established,related accept)$`,
				"$1 $2\n$1 meta mark 0x1 accept"},
		},
	},
	{
		Name: "root-alone-exempt", Breaks: "Of the programs of a pod's node, those of root alone are let through.",
		Scenarios: []string{"np-own-node-any-user"},
		Text: []Rewrite{
			{XTables, `^(-A cali-OUTPUT .*)-j RETURN$`, "$1-m owner ! --uid-owner 1-65535 -j RETURN"},
			{NFT, `^(add rule inet network-policy ingress fib saddr type local) accept$`, "$1 meta skuid 0 accept"},
		},
	},
	{
		Name: "old-policies-stay", Breaks: "The chains of policies that are gone are emptied, and stay.",
		Scenarios: []string{"np-nothing-piles-up"},
		Text: []Rewrite{
			{XTables, `^-X cali-p[io]-.*`, ""},
			{NFT, `^delete chain inet network-policy (in|e)gress-by-.*`, ""},
		},
	},
	{
		Name: "pod-tunnels-pass", Breaks: "Pods may make tunnels.",
		Scenarios: []string{"np-calico-workload-chain"},
		Text:      []Rewrite{{XTables, `^-A cali-fw-\S+ .*encapped packets.*-j DROP`, ""}},
	},
}

// policies is a State that changes every NetworkPolicy.
func policies(change func(*networkingv1.NetworkPolicy)) func() func(store.Object) store.Object {
	return copied(change)
}
