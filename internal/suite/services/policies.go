// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/dice"
)

// isolate adds NetworkPolicies to the states of a case, and changes of them. The other objects stay what they are. The
// same seed and number give the same policies.
func (c *Case) isolate(seed, number uint64) {
	d := policyDice{dice.New(^seed, number)}
	var policies []*networkingv1.NetworkPolicy
	for range d.IntN(3) {
		policies = append(policies, d.policy(fmt.Sprintf("p%d", len(policies)+1)))
	}
	for i := range c.States {
		s := &c.States[i]
		if i > 0 && d.Chance(2) {
			kind := dice.OneOf(d.Dice, policyChanges...)
			if what := kind.do(d, &policies); what != "" {
				s.Kinds = append(s.Kinds, kind.name)
				s.Change += "; " + what
			}
		}
		for _, p := range policies {
			s.Policies = append(s.Policies, p.DeepCopy())
		}
	}
}

// policyDice generates NetworkPolicies.
type policyDice struct{ dice.Dice }

// policyChange is a kind of change of the policies of a state. do describes the change. It returns "" if there is
// nothing to change.
type policyChange struct {
	name string
	do   func(d policyDice, all *[]*networkingv1.NetworkPolicy) string
}

var policyChanges = []policyChange{
	{"policy comes", func(d policyDice, all *[]*networkingv1.NetworkPolicy) string {
		name := ""
		for i := 1; name == "" || find(*all, name) != nil; i++ {
			name = fmt.Sprintf("p%d", i)
		}
		*all = append(slices.Clone(*all), d.policy(name))
		return "policy " + name + " comes"
	}},
	{"policy goes", func(d policyDice, all *[]*networkingv1.NetworkPolicy) string {
		if len(*all) == 0 {
			return ""
		}
		i := d.IntN(len(*all))
		name := (*all)[i].Name
		*all = slices.Delete(slices.Clone(*all), i, i+1)
		return "policy " + name + " goes"
	}},
	{"policy is edited", func(d policyDice, all *[]*networkingv1.NetworkPolicy) string {
		if len(*all) == 0 {
			return ""
		}
		i := d.IntN(len(*all))
		name := (*all)[i].Name
		*all = slices.Clone(*all)
		(*all)[i] = d.policy(name)
		return "policy " + name + " is edited"
	}},
}

// policy returns a policy. Egress rules name pods alone, without ports and ranges of addresses: of traffic to Services,
// the API does not define whether these apply before or after the destination is rewritten.
func (d policyDice) policy(name string) *networkingv1.NetworkPolicy {
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	p := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	p.Spec.PodSelector = d.pods()
	p.Spec.PolicyTypes = dice.OneOf(d.Dice, nil, []networkingv1.PolicyType{in}, []networkingv1.PolicyType{in},
		[]networkingv1.PolicyType{out}, []networkingv1.PolicyType{in, out})
	p.Spec.Ingress = dice.List(d.Dice, 2, func() networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: dice.List(d.Dice, 2, d.sender), Ports: d.ports()}
	})
	p.Spec.Egress = dice.List(d.Dice, 2, func() networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: dice.List(d.Dice, 2, d.peer)}
	})
	return p
}

// pods returns a selector of some of a case's pods.
func (d policyDice) pods() metav1.LabelSelector {
	switch d.IntN(4) {
	case 0:
		return metav1.LabelSelector{}
	case 1:
		how := dice.OneOf(d.Dice, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: how, Values: []string{"web"}},
		}}
	}
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": dice.OneOf(d.Dice, "web", "web", "other", "")}}
}

// peer returns pods of the namespace or of all namespaces.
func (d policyDice) peer() (p networkingv1.NetworkPolicyPeer) {
	shape := d.IntN(4)
	if shape != 0 {
		p.PodSelector = ptr.To(d.pods())
	}
	if shape < 2 {
		p.NamespaceSelector = &metav1.LabelSelector{}
	}
	return p
}

// sender returns pods, or a range: of all addresses of a family, of pods, or of nodes and clients outside.
func (d policyDice) sender() networkingv1.NetworkPolicyPeer {
	if !d.Chance(4) {
		return d.peer()
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: dice.OneOf(d.Dice, "0.0.0.0/0", "::/0",
		"10.244.0.0/16", "fd00:10:244::/48", "192.168.7.0/24", "fd00:7::/64")}}
}

// ports returns a few of the ports that pods have.
func (d policyDice) ports() []networkingv1.NetworkPolicyPort {
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	return dice.List(d.Dice, 2, func() (p networkingv1.NetworkPolicyPort) {
		p.Protocol = dice.OneOf(d.Dice, nil, &tcp, &udp)
		switch d.IntN(4) {
		case 0: // all
		case 1:
			p.Port = ptr.To(intstr.FromString(dice.OneOf(d.Dice, "http", "dns")))
		case 2:
			p.Port, p.EndPort = ptr.To(intstr.FromInt32(8080)), ptr.To[int32](8081)
		default:
			p.Port = ptr.To(intstr.FromInt32(dice.OneOf[int32](d.Dice, 8080, 8081)))
		}
		return p
	})
}
