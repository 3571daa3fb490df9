// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab/cluster/store"
)

var policyFaults = []Fault{
	{Name: "policies-forgotten", Description: "No pod is isolated, whatever policies there are.",
		State: stateless(func(o store.Object) store.Object {
			if _, ok := o.(*networkingv1.NetworkPolicy); ok {
				return nil
			}
			return o
		})},
	{Name: "policy-rules-lost", Description: "A policy isolates its pods, and allows nothing.",
		State: each(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress, p.Spec.Egress = nil, nil
		})},
	{Name: "policy-ports-lost", Description: "What a policy allows on one port is allowed on all of them.",
		State: each(func(p *networkingv1.NetworkPolicy) {
			for _, ports := range oracle.EachRule(p) {
				*ports = nil
			}
		})},
	{Name: "policy-update-missed", Description: "A policy stays as it was when it was first seen.",
		State: remembering(func(first, now *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
			if first.UID != now.UID {
				return now
			}
			return asBefore(first, now)
		})},
	{Name: "recreated-policy-missed",
		Description: "A policy that is made again under the name of a deleted one stays as that was.",
		State: remembering(func(last, now *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
			if last.UID == now.UID {
				return now
			}
			return asBefore(last, now)
		})},
	{Name: "policies-lapse",
		Description: "A policy that is written anew counts for nothing until it is written once more.",
		State: func() func(store.Object) store.Object {
			versions := map[store.Key]int{}
			return stateless(func(o store.Object) store.Object {
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
		}},
	{Name: "policy-blocks-lost", Description: "Peers that are blocks of addresses are passed over.",
		State: each(func(p *networkingv1.NetworkPolicy) {
			isBlock := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }
			noPod := &metav1.LabelSelector{MatchLabels: map[string]string{"no-pod": "has-this"}}
			noPeer := networkingv1.NetworkPolicyPeer{PodSelector: noPod}
			for peers := range oracle.EachRule(p) {
				if slices.ContainsFunc(*peers, isBlock) {
					*peers = append(slices.DeleteFunc(*peers, isBlock), noPeer)
				}
			}
		})},
	{Name: "pod-labels-missed", Description: "For policies a pod has the labels that it had at first.",
		State: remembering(func(first, now *corev1.Pod) *corev1.Pod {
			if first.UID != now.UID {
				return now
			}
			now = now.DeepCopy()
			now.Labels = first.Labels
			return now
		})},
}

var policyRules = []Fault{
	{Name: "new-pods-open", Description: "Traffic to a pod that the enforcer has not seen yet is let through.",
		Text: []Rewrite{
			{XTables, `^-A cali-(to|from)-wl-dispatch .*Unknown interface.*-j DROP`, ""},
			{NFT, `^add rule inet network-policy (in|e)gress .*"DP[IE]\|unknown pod".*`, ""},
		}},
	{Name: "pod-sources-unchecked", Description: "A pod may send from any address.", Text: []Rewrite{
		{XTables, `^-A cali-PREROUTING .*rpfilter.*-j DROP`, ""},
		{NFT, `^add rule \S+ network-policy sources .*@ports.*`, ""},
	}},
	{Name: "egress-is-final", Description: "What a policy lets a pod send is not judged for the pods of its own node.",
		Text: []Rewrite{
			{XTables, `^(-A cali-po-\S+ .*)-j MARK --set-xmark 0x10000/0x10000$`, "$1-j ACCEPT"},
			{NFT, `^(add rule inet network-policy egress-by-\S+ (?:.* )?)accept( comment .*)?$`,
				"${1}meta mark set 0x1 accept$2"},
			{NFT, `^(add rule inet network-policy ingress) (ct state established,related accept)$`,
				"$1 $2\n$1 meta mark 0x1 accept"},
		}},
	{Name: "root-alone-exempt", Description: "Of the programs of a pod's node, those of root alone are let through.",
		Text: []Rewrite{
			{XTables, `^(-A cali-OUTPUT .*)-j RETURN$`, "$1-m owner ! --uid-owner 1-65535 -j RETURN"},
			{NFT, `^(add rule inet network-policy ingress fib saddr type local) accept$`, "$1 meta skuid 0 accept"},
		}},
	{Name: "old-policies-stay", Description: "The chains of policies that are gone are emptied, and stay.",
		Text: []Rewrite{
			{XTables, `^-X cali-p[io]-.*`, ""},
			{NFT, `^delete chain inet network-policy (in|e)gress-by-.*`, ""},
		}},
	{Name: "second-datagram-lost",
		Description: "A datagram of a pod that follows another one before the answer is dropped.", Text: []Rewrite{
			{XTables, `^(-A cali-fw-\S+ ).*RELATED,ESTABLISHED .*-j ACCEPT$`,
				"$0\n${1}-p udp -m conntrack --ctstate NEW --ctstatus CONFIRMED -j DROP"},
			{NFT, `^(add rule inet network-policy egress) ct state established,related accept$`,
				"$0\n$1 meta l4proto udp ct state new ct status confirmed drop"},
		}},
	{Name: "sctp-replies-judged", Description: "Over SCTP, replies need a policy that allows them.",
		Text: []Rewrite{
			{XTables, `^(-A cali-[ft]w-\S+ )(.*RELATED,ESTABLISHED .*-j ACCEPT)$`, "$1! -p sctp $2"},
			{NFT, `^(add rule inet network-policy (?:in|e)gress) (ct state established,related accept)$`,
				"$1 meta l4proto != sctp $2"},
		}},
	{Name: "pings-dropped", Description: "No ICMP packet gets to a pod, whether the pod is isolated or not.",
		Text: []Rewrite{
			{XTables, `^(-A cali-tw-\S+ ).*RELATED,ESTABLISHED .*-j ACCEPT$`,
				"$1-p icmp -j DROP\n$1-p ipv6-icmp -j DROP\n$0"},
			{NFT, `^(add rule inet network-policy ingress) ct state established,related accept$`,
				"$1 fib saddr type != local icmp type echo-request drop\n" +
					"$1 fib saddr type != local icmpv6 type echo-request drop\n$0"},
		}},
	{Name: "pod-tunnels-pass", Description: "Pods may make tunnels.",
		Text: []Rewrite{{XTables, `^-A cali-fw-\S+ .*encapped packets.*-j DROP`, ""}}},
}
