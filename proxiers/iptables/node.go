// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// masqueradeMark is the bit of the packet mark that requests masquerading: bit 14, kube-proxy's default.
const masqueradeMark = 1 << 14

// jumps returns the jumps in the order in which each built-in chain must have them.
func (n *nodeRules) jumps() []xtables.Entry {
	fresh := xtables.State("NEW") // the verdict on a connection's first packet holds for the rest
	all := []xtables.Entry{
		xtables.NewEntry(xtables.Filter, "INPUT", chainFirewall, fresh, xtables.Comment("kubernetes load balancer firewall")),
		xtables.NewEntry(xtables.Filter, "INPUT", chainNodePorts, xtables.Comment("kubernetes health check service ports")),
		xtables.NewEntry(xtables.Filter, "INPUT", chainExternal, fresh,
			xtables.Comment("kubernetes externally-visible service portals")),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainFirewall, fresh,
			xtables.Comment("kubernetes load balancer firewall")),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainForward, xtables.Comment("kubernetes forwarding rules")),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainServices, fresh, xtables.Comment("kubernetes service portals")),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainExternal, fresh,
			xtables.Comment("kubernetes externally-visible service portals")),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainFirewall, fresh,
			xtables.Comment("kubernetes load balancer firewall")),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainServices, fresh, xtables.Comment("kubernetes service portals")),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainExternal, fresh,
			xtables.Comment("kubernetes externally-visible service portals")),
		xtables.NewEntry(xtables.NAT, "PREROUTING", chainServices, xtables.Comment("kubernetes service portals")),
		xtables.NewEntry(xtables.NAT, "OUTPUT", chainServices, xtables.Comment("kubernetes service portals")),
		xtables.NewEntry(xtables.NAT, "POSTROUTING", chainPostrouting, xtables.Comment("kubernetes postrouting rules")),
	}
	if n.localhost {
		all = append(all, xtables.NewEntry(xtables.Filter, "INPUT", chainLocalnet),
			xtables.NewEntry(xtables.Filter, "OUTPUT", chainLocalnet))
	}
	return all
}

// nodeRules holds the settings that the rules independent of Services need.
type nodeRules struct {
	family lab.Family
	// localhost is set if NodePorts answer on 127.0.0.1, which makes loopback addresses routable.
	localhost bool
	// randomFully is set if the kernel can pick the source ports of masqueraded connections at random.
	randomFully bool
	// liberal is set if connection tracking accepts out-of-window TCP segments as valid.
	liberal bool
}

// filterChains returns the fixed chains of the filter table.
func (n *nodeRules) filterChains() []xtables.Chain {
	forward := xtables.Chain{Name: chainForward}
	if !n.liberal {
		// An out-of-window segment is not translated: a client that received it would reset its connection.
		forward.Add(xtables.State("INVALID"), xtables.Drop)
	}
	forward.Add(xtables.Comment("kubernetes forwarding rules"), xtables.Marked(masqueradeMark), xtables.Accept)
	forward.Add(xtables.Comment("kubernetes forwarding conntrack rule"), xtables.State("RELATED,ESTABLISHED"),
		xtables.Accept)
	all := []xtables.Chain{forward}
	if n.localhost {
		// With route_localnet, a neighbour could reach 127.0.0.1 of this node (CVE-2020-8558).
		lo := nodeaddr.Loopback(lab.V4)
		guard := xtables.Chain{Name: chainLocalnet}
		guard.Add(xtables.Comment("block incoming localnet connections"), xtables.ToRange(lo), xtables.NotFrom(lo),
			xtables.NotState("RELATED,ESTABLISHED,DNAT"), xtables.Drop)
		all = append(all, guard)
	}
	return all
}

// natChains returns the fixed chains of the nat table.
func (n *nodeRules) natChains() []xtables.Chain {
	mark := xtables.Chain{Name: chainMarkMasq}
	mark.Add(xtables.SetMark(masqueradeMark))

	masquerade := xtables.Masquerade
	if n.randomFully {
		masquerade = xtables.MasqueradeFully
	}
	post := xtables.Chain{Name: chainPostrouting}
	post.Add(xtables.NotMarked(masqueradeMark), xtables.Return)
	// The mark is cleared first, because the packet may pass again inside the packet of a tunnel.
	post.Add(xtables.FlipMark(masqueradeMark))
	post.Add(xtables.Comment("kubernetes service traffic requiring SNAT"), masquerade)
	return []xtables.Chain{mark, post}
}

// nodePortEntry returns the last rules of nat KUBE-SERVICES, which look up NodePorts. addrs limits them to some
// addresses; nil means all local addresses.
func (n *nodeRules) nodePortEntry(addrs []netip.Addr) []xtables.Rule {
	about := xtables.Comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
	if addrs == nil {
		parts := []xtables.Part{about, xtables.ToLocal}
		if !n.localhost {
			parts = append(parts, xtables.NotTo(nodeaddr.Loopback(n.family)))
		}
		return []xtables.Rule{xtables.NewRule(append(parts, xtables.Jump(chainNodePorts))...)}
	}
	rules := []xtables.Rule{}
	for _, a := range addrs {
		rules = append(rules, xtables.NewRule(about, xtables.ToAddr(a), xtables.Jump(chainNodePorts)))
	}
	return rules
}
