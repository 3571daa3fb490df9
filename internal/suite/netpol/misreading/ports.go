// SPDX-License-Identifier: Apache-2.0

package misreading

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

func blocks() []Reading {
	return []Reading{
		eachBlock("except-ignored", func(p peer) []peer { p.IPBlock.Except = nil; return []peer{p} }),
		eachBlock("except-first-only", func(p peer) []peer {
			p.IPBlock.Except = first(p.IPBlock.Except,
				1)
			return []peer{p}
		}),
		eachBlock("ipBlock-ignores-pods", func(peer) []peer { return nil }),
		eachBlock("ipBlock-is-everything", func(p peer) []peer { p.IPBlock.CIDR = "0.0.0.0/0"; return []peer{p} }),
		eachBlock("host-bits-not-masked", func(p peer) []peer {
			if block, err := netip.ParsePrefix(p.IPBlock.CIDR); err == nil && block != block.Masked() {
				return nil
			}
			return []peer{p}
		}),
		{Name: "lpm-no-inherit", Policies: func(_ *oracle.Cluster, given []*Policy) []*Policy {
			var all []netip.Prefix
			walk := func(visit func(*peer)) {
				for _, p := range given {
					for _, r := range p.Spec.Ingress {
						for i := range r.From {
							visit(&r.From[i])
						}
					}
				}
			}
			walk(func(p *peer) {
				if p.IPBlock != nil {
					all = append(all, netip.MustParsePrefix(p.IPBlock.CIDR))
				}
			})
			walk(func(p *peer) {
				if p.IPBlock == nil {
					return
				}
				own := netip.MustParsePrefix(p.IPBlock.CIDR)
				for _, narrower := range all {
					if narrower.Bits() > own.Bits() && own.Contains(narrower.Addr()) {
						p.IPBlock.Except = append(p.IPBlock.Except, narrower.Masked().String())
					}
				}
			})
			return given
		}},
	}
}

func eachBlock(name string, edit func(peer) []peer) Reading {
	return eachPeer(name, func(_ string, p peer) []peer {
		if p.IPBlock == nil {
			return []peer{p}
		}
		return edit(p)
	})
}

func named(p port) bool { return p.Port != nil && p.Port.Type == intstr.String }

// protocols are those that a table probes.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

// ofAnyProtocol is the port with every protocol.
func ofAnyProtocol(p port) []port {
	var now []port
	for _, proto := range protocols {
		one := p
		one.Protocol = ptr.To(proto)
		now = append(now, one)
	}
	return now
}

func ports() []Reading {
	return []Reading{
		eachPort("endPort-ignored", func(p port) []port { p.EndPort = nil; return []port{p} }),
		eachPort("endPort-exclusive", func(p port) []port {
			if p.EndPort == nil {
				return []port{p}
			}
			if *p.EndPort == p.Port.IntVal {
				return nil
			}
			p.EndPort = ptr.To(*p.EndPort - 1)
			return []port{p}
		}),
		eachPort("endPort-opens-upwards", func(p port) []port {
			if p.EndPort != nil {
				p.EndPort = ptr.To[int32](65535)
			}
			return []port{p}
		}),
		eachPort("sctp-is-tcp", func(p port) []port {
			if ptr.Deref(p.Protocol, "") == corev1.ProtocolSCTP {
				p.Protocol = ptr.To(corev1.ProtocolTCP)
			}
			return []port{p}
		}),
		eachPort("protocol-ignored", ofAnyProtocol),
		eachPort("nil-protocol-is-any", func(p port) []port {
			if p.Protocol == nil {
				return ofAnyProtocol(p)
			}
			return []port{p}
		}),
		eachPort("nil-port-matches-none", func(p port) []port {
			if p.Port == nil {
				return nil
			}
			return []port{p}
		}),
		eachPort("named-port-protocol-ignored", func(p port) []port {
			if named(p) {
				return ofAnyProtocol(p)
			}
			return []port{p}
		}),
		eachPort("named-port-ignored-allows-proto", func(p port) []port {
			if named(p) {
				p.Port = nil
			}
			return []port{p}
		}),
		eachPort("named-port-not-implemented", func(p port) []port {
			if named(p) {
				return nil
			}
			return []port{p}
		}),
		{Name: "named-port-any-pod", Policies: func(c *oracle.Cluster, given []*Policy) []*Policy {
			r := eachPort("", func(p port) []port {
				if !named(p) {
					return []port{p}
				}
				return numbersOf(c, p)
			})
			return r.Policies(c, given)
		}},
	}
}

// numbersOf are the numbers that any pod has under the name of the port.
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
