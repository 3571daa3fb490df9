// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/dice"
	"github.com/viplab/viplab/suite/spec"
)

// Random returns a case of one to three policies in which any field of the API can be absent, empty or filled. The same
// seed and number give the same case.
func Random(seed, number uint64) Case {
	d := generator{dice.New(seed, number)}
	c := Case{ID: fmt.Sprintf("random-%d-%d", seed, number), Priority: spec.P1, NamedPorts: randomNames}
	for i := range 1 + d.IntN(3) {
		c.Policies = append(c.Policies, d.policy(i))
	}
	c.Given = fmt.Sprintf("%d generated policies", len(c.Policies))
	return c
}

// randomNames are port names that have a different number on each pod, or none.
var randomNames = NamedPorts{
	"x/a": {{"http", Port{80, corev1.ProtocolTCP}}, {"dns", Port{80, corev1.ProtocolTCP}},
		{"dns", Port{81, corev1.ProtocolUDP}}},
	"x/b": {{"http", Port{81, corev1.ProtocolTCP}}},
	"y/a": {{"http", Port{80, corev1.ProtocolTCP}}},
	"y/b": {{"http", Port{81, corev1.ProtocolTCP}}, {"dns", Port{81, corev1.ProtocolUDP}}},
	"z/c": {{"dns", Port{80, corev1.ProtocolUDP}}},
}

type generator struct{ dice.Dice }

func (d generator) policy(number int) *networkingv1.NetworkPolicy {
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	p := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespaces[d.IntN(len(Namespaces))], Name: fmt.Sprintf("p%d", number)},
	}
	p.Spec.PodSelector = d.podSelector()
	p.Spec.PolicyTypes = dice.OneOf(d.Dice, nil, []networkingv1.PolicyType{in}, []networkingv1.PolicyType{out},
		[]networkingv1.PolicyType{in, out}, []networkingv1.PolicyType{out, in})
	p.Spec.Ingress = dice.List(d.Dice, 3, func() networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: dice.List(d.Dice, 3, d.peer), Ports: d.ports()}
	})
	p.Spec.Egress = dice.List(d.Dice, 3, func() networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: dice.List(d.Dice, 3, d.peer), Ports: d.ports()}
	})
	return p
}

func (d generator) podSelector() metav1.LabelSelector {
	return d.selector(map[string][]string{"pod": {"a", "b", "c", "d"}, "tier": {"web", "db"}}, "pod", "pod", "tier")
}

func (d generator) namespaceSelector() metav1.LabelSelector {
	return d.selector(map[string][]string{
		"ns": {"x", "y", "z", "w"}, "team": {"red", "blue"}, corev1.LabelMetadataName: {"x", "y", "z"},
	}, "ns", "ns", "team", corev1.LabelMetadataName)
}

// selector returns a selector that is empty, or has labels, expressions or both, of these keys and values.
func (d generator) selector(values map[string][]string, keys ...string) (s metav1.LabelSelector) {
	shape := d.IntN(6)
	if shape == 1 || shape == 2 || shape == 5 {
		s.MatchLabels = map[string]string{}
		for range 1 + d.IntN(2) {
			key := dice.OneOf(d.Dice, keys...)
			s.MatchLabels[key] = dice.OneOf(d.Dice, values[key]...)
		}
	}
	if shape >= 3 {
		for range 1 + d.IntN(2) {
			s.MatchExpressions = append(s.MatchExpressions, d.requirement(values, keys))
		}
	}
	return s
}

func (d generator) requirement(values map[string][]string, keys []string) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: dice.OneOf(d.Dice, keys...), Operator: dice.OneOf(d.Dice,
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
		metav1.LabelSelectorOpDoesNotExist)}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		for range 1 + d.IntN(2) {
			r.Values = append(r.Values, dice.OneOf(d.Dice, values[r.Key]...))
		}
	}
	return r
}

func (d generator) peer() networkingv1.NetworkPolicyPeer {
	shape := d.IntN(5)
	if shape == 0 {
		return networkingv1.NetworkPolicyPeer{IPBlock: d.block()}
	}
	var p networkingv1.NetworkPolicyPeer
	if shape != 1 {
		p.PodSelector = ptr.To(d.podSelector())
	}
	if shape != 2 {
		p.NamespaceSelector = ptr.To(d.namespaceSelector())
	}
	return p
}

// block returns a range around the grid's pods, except up to two narrower ranges.
func (d generator) block() *networkingv1.IPBlock {
	at := netip.AddrFrom4([4]byte{10, 244, byte(1 + d.IntN(3)), byte(2 + d.IntN(3))})
	ranges := []int{0, 8, 12, 16, 22, 24, 24, 25, 30, 31, 32, 32} // bits
	bits := dice.OneOf(d.Dice, ranges...)
	b := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(at, bits).Masked().String()}
	if d.IntN(8) == 0 {
		b.CIDR = netip.PrefixFrom(at, bits).String() // with host bits, as objects of old API servers may have
	}
	for range d.IntN(3) {
		except := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + d.IntN(3)), byte(2 + d.IntN(3))}),
			dice.OneOf(d.Dice, ranges...)).Masked()
		if except.Bits() > bits && netip.PrefixFrom(at, bits).Masked().Contains(except.Addr()) {
			b.Except = append(b.Except, except.String())
		}
	}
	return b
}

// ports returns a few ports, and sometimes more than a multiport match of iptables holds.
func (d generator) ports() []networkingv1.NetworkPolicyPort {
	out := dice.List(d.Dice, 3, d.port)
	if len(out) > 0 && d.IntN(12) == 0 {
		for range 16 {
			out = append(out, networkingv1.NetworkPolicyPort{Protocol: out[0].Protocol,
				Port: ptr.To(intstr.FromInt(7000 + d.IntN(100)))})
		}
		out = append(out, d.port())
	}
	return out
}

func (d generator) port() (p networkingv1.NetworkPolicyPort) {
	tcp, udp, sctp := corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP
	p.Protocol = dice.OneOf(d.Dice, nil, &tcp, &udp, &tcp, &udp, &sctp)
	switch d.IntN(8) {
	case 0: // all
	case 1, 2:
		p.Port = ptr.To(intstr.FromString(dice.OneOf(d.Dice, "http", "dns", Ports[0].name(), Ports[3].name(), "nobodys")))
	case 3, 4:
		first := dice.OneOf[int32](d.Dice, 1, 53, 79, 80, 81)
		p.Port = ptr.To(intstr.FromInt32(first))
		p.EndPort = ptr.To(first + dice.OneOf[int32](d.Dice, 0, 0, 1, 2, 26, 27, 28, 1000))
	default:
		p.Port = ptr.To(intstr.FromInt32(dice.OneOf[int32](d.Dice, 80, 80, 81, 81, 79, 8080)))
	}
	return p
}
