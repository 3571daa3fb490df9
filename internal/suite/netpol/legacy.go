// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"net/netip"
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// legacy are policies that an API server takes no longer, but hands out where an older one has taken them: ranges whose
// address has bits behind the prefix. The store is given the range without them, and what is read of it has them again.
type legacy map[store.Key]*networkingv1.NetworkPolicy

// admissible is the policy as the store takes it.
func (l legacy) admissible(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	clean := p.DeepCopy()
	eachBlockOf(clean, func(b *networkingv1.IPBlock) {
		if block, err := netip.ParsePrefix(b.CIDR); err == nil && block != block.Masked() {
			b.CIDR = block.Masked().String()
		}
	})
	if !reflect.DeepEqual(clean, p) {
		l[store.KeyOf(p)] = p
	}
	return clean
}

// see is what readers of the store see of an object.
func (l legacy) see(o store.Object) store.Object {
	p, ok := o.(*networkingv1.NetworkPolicy)
	if !ok || l[store.KeyOf(p)] == nil {
		return o
	}
	var written []string
	eachBlockOf(l[store.KeyOf(p)], func(b *networkingv1.IPBlock) { written = append(written, b.CIDR) })
	p = p.DeepCopy()
	eachBlockOf(p, func(b *networkingv1.IPBlock) { b.CIDR, written = written[0], written[1:] })
	return p
}

func eachBlockOf(p *networkingv1.NetworkPolicy, visit func(*networkingv1.IPBlock)) {
	var peers []networkingv1.NetworkPolicyPeer
	for _, r := range p.Spec.Ingress {
		peers = append(peers, r.From...)
	}
	for _, r := range p.Spec.Egress {
		peers = append(peers, r.To...)
	}
	for _, x := range peers {
		if x.IPBlock != nil {
			visit(x.IPBlock)
		}
	}
}
