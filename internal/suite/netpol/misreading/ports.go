// SPDX-License-Identifier: Apache-2.0

package misreading

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

func blocks() []Reading {
	return []Reading{
		eachBlock("except-ignored", change(func(p *peer) { p.IPBlock.Except = nil })),
		eachBlock("except-first-only", change(func(p *peer) { p.IPBlock.Except = first(p.IPBlock.Except, 1) })),
		eachBlock("ipBlock-ignores-pods", drop(func(peer) bool { return true })),
		eachBlock("ipBlock-is-everything", change(func(p *peer) { p.IPBlock.CIDR = "0.0.0.0/0" })),
		eachBlock("host-bits-not-masked", drop(func(p peer) bool {
			block, err := netip.ParsePrefix(p.IPBlock.CIDR)
			return err == nil && block != block.Masked()
		})),
		{Name: "lpm-no-inherit", Policies: func(_ *oracle.Cluster, given []*Policy) []*Policy {
			blocks := all(given, ingressBlocks)
			for _, b := range blocks {
				own := netip.MustParsePrefix(b.CIDR)
				for _, other := range blocks {
					narrower := netip.MustParsePrefix(other.CIDR)
					if narrower.Bits() > own.Bits() && own.Contains(narrower.Addr()) {
						b.Except = append(b.Except, narrower.Masked().String())
					}
				}
			}
			return given
		}},
	}
}

func ingressBlocks(p *Policy) (blocks []*networkingv1.IPBlock) {
	for _, r := range p.Spec.Ingress {
		for _, x := range r.From {
			if x.IPBlock != nil {
				blocks = append(blocks, x.IPBlock)
			}
		}
	}
	return blocks
}

func eachBlock(name string, edit func(peer) []peer) Reading {
	return eachPeer(name, replace(func(p peer) bool { return p.IPBlock != nil }, edit))
}

func named(p port) bool { return p.Port != nil && p.Port.Type == intstr.String }

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

func ofAnyProtocol(p port) []port {
	return all(protocols, func(proto corev1.Protocol) []port {
		p.Protocol = &proto
		return []port{p}
	})
}

func ports() []Reading {
	return []Reading{
		eachPort("endPort-ignored", change(func(p *port) { p.EndPort = nil })),
		eachPort("endPort-exclusive", replace(func(p port) bool { return p.EndPort != nil }, func(p port) []port {
			if *p.EndPort == p.Port.IntVal {
				return nil
			}
			p.EndPort = ptr.To(*p.EndPort - 1)
			return []port{p}
		})),
		eachPort("endPort-opens-upwards", change(func(p *port) {
			if p.EndPort != nil {
				p.EndPort = ptr.To[int32](65535)
			}
		})),
		eachPort("sctp-is-tcp", change(func(p *port) {
			if ptr.Deref(p.Protocol, "") == corev1.ProtocolSCTP {
				p.Protocol = ptr.To(corev1.ProtocolTCP)
			}
		})),
		eachPort("protocol-ignored", ofAnyProtocol),
		eachPort("nil-protocol-is-any", replace(func(p port) bool { return p.Protocol == nil }, ofAnyProtocol)),
		eachPort("nil-port-matches-none", drop(func(p port) bool { return p.Port == nil })),
		eachPort("named-port-protocol-ignored", replace(named, ofAnyProtocol)),
		eachPort("named-port-ignored-allows-proto", change(func(p *port) {
			if named(*p) {
				p.Port = nil
			}
		})),
		eachPort("named-port-not-implemented", drop(named)),
		{Name: "named-port-any-pod", Policies: func(c *oracle.Cluster, given []*Policy) []*Policy {
			return eachPort("", replace(named, func(p port) []port { return numbersOf(c, p) })).Policies(c, given)
		}},
	}
}

// numbersOf returns the port numbers that any pod gives to the port's name.
func numbersOf(c *oracle.Cluster, p port) []port {
	var now []port
	for _, pod := range c.Pods {
		for _, has := range pod.Ports {
			one := port{Protocol: p.Protocol, Port: ptr.To(intstr.FromInt32(has.ContainerPort))}
			if has.Name == p.Port.StrVal && has.Protocol == ptr.Deref(p.Protocol, corev1.ProtocolTCP) &&
				!slices.ContainsFunc(now, func(x port) bool { return x.Port.IntVal == one.Port.IntVal }) {
				now = append(now, one)
			}
		}
	}
	return now
}
