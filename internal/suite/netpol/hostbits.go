// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"net/netip"
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab/cluster/store"
)

// hostBits are policies with ranges that have host bits, such as 10.244.1.2/24. API servers no longer accept such
// ranges, but still serve those that an older server accepted. The store gets the ranges without host bits, and its
// readers see them with host bits.
type hostBits map[store.Key]*networkingv1.NetworkPolicy

// strip returns the policy without host bits.
func (h hostBits) strip(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	clean := p.DeepCopy()
	for _, b := range blocksOf(clean) {
		if block, err := netip.ParsePrefix(b.CIDR); err == nil && block != block.Masked() {
			b.CIDR = block.Masked().String()
		}
	}
	if !reflect.DeepEqual(clean, p) {
		h[store.KeyOf(p)] = p
	}
	return clean
}

// restore returns an object with its host bits.
func (h hostBits) restore(o store.Object) store.Object {
	p, ok := o.(*networkingv1.NetworkPolicy)
	if !ok || h[store.KeyOf(p)] == nil {
		return o
	}
	p = p.DeepCopy()
	written := blocksOf(h[store.KeyOf(p)])
	for i, b := range blocksOf(p) {
		b.CIDR = written[i].CIDR
	}
	return p
}

func blocksOf(p *networkingv1.NetworkPolicy) (blocks []*networkingv1.IPBlock) {
	for peers := range oracle.EachRule(p) {
		for _, x := range *peers {
			if x.IPBlock != nil {
				blocks = append(blocks, x.IPBlock)
			}
		}
	}
	return blocks
}
