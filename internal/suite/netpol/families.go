// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
)

// Cases are written for IPv4. For an IPv6 cluster, every range is replaced by its twin in the other family; for a
// dual-stack cluster, every IPv4 range gets its IPv6 twin beside it.

// podRange is the range of all pods, by family.
var podRange = map[lab.Family]netip.Prefix{
	lab.V4: netip.MustParsePrefix("10.244.0.0/16"),
	lab.V6: netip.MustParsePrefix("fd00:10:244::/48"),
}

// forStack returns copies of the policies for a cluster of these families.
func forStack(policies []*networkingv1.NetworkPolicy, stack lab.Stack) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for _, p := range policies {
		p = p.DeepCopy()
		for peers := range oracle.EachRule(p) {
			*peers = peersForStack(*peers, stack)
		}
		out = append(out, p)
	}
	return out
}

func peersForStack(peers []networkingv1.NetworkPolicyPeer, stack lab.Stack) []networkingv1.NetworkPolicyPeer {
	if stack == lab.IPv4 || len(peers) == 0 {
		return peers
	}
	var out []networkingv1.NetworkPolicyPeer
	for _, p := range peers {
		twin := twinOf(p)
		if twin == nil || stack == lab.Dual {
			out = append(out, p)
		}
		if twin != nil && (stack == lab.IPv6 || netip.MustParsePrefix(p.IPBlock.CIDR).Addr().Is4()) {
			out = append(out, *twin)
		}
	}
	return out
}

// twinOf returns the ipBlock in the other family, nil for other peers and for ranges that cannot be parsed.
func twinOf(p networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicyPeer {
	if p.IPBlock == nil {
		return nil
	}
	block, err := netip.ParsePrefix(p.IPBlock.CIDR)
	if err != nil {
		return nil
	}
	out := &networkingv1.IPBlock{CIDR: twin(block).String()}
	for _, e := range p.IPBlock.Except {
		if except, err := netip.ParsePrefix(e); err == nil {
			out.Except = append(out.Except, twin(except).String())
		}
	}
	return &networkingv1.NetworkPolicyPeer{IPBlock: out}
}

// twin returns the range of the other family that holds the same pods.
func twin(p netip.Prefix) netip.Prefix {
	v4, v6 := podRange[lab.V4], podRange[lab.V6]
	if p.Addr().Is6() {
		return netip.MustParsePrefix("10.0.0.0/8") // cases have no IPv6 range but all of fd00::/8
	}
	switch bits := p.Bits(); {
	case bits == 0:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	case v4.Contains(p.Addr()) && bits >= v4.Bits():
		a, b := v6.Addr().As16(), p.Addr().As4()
		a[7], a[15] = b[2], b[3]
		if bits <= 24 { // of the 16 bits that number a node, IPv4 has 8
			bits = v6.Bits() + max(0, bits-v4.Bits()+8)*min(1, bits-v4.Bits())
		} else {
			bits += 96
		}
		return netip.PrefixFrom(netip.AddrFrom16(a), bits)
	case p.Contains(v4.Addr()):
		return netip.PrefixFrom(v6.Addr(), v6.Bits()-(v4.Bits()-bits)).Masked()
	default: // no pod is in it, as none was in the IPv4 range
		var a [16]byte
		copy(a[12:], p.Addr().AsSlice())
		return netip.PrefixFrom(netip.AddrFrom16(a), 96+bits)
	}
}
