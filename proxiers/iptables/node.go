// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// jumps returns the jumps in the order in which each built-in chain must have them.
func (n *nodeRules) jumps() []xtables.Entry {
	const (
		firewall = "kubernetes load balancer firewall"
		services = "kubernetes service portals"
		external = "kubernetes externally-visible service portals"
	)
	fresh := xtables.State("NEW") // the verdict on a connection's first packet holds for the rest
	all := []xtables.Entry{
		xtables.NewEntry(xtables.Filter, "INPUT", chainFirewall, firewall, fresh),
		xtables.NewEntry(xtables.Filter, "INPUT", chainNodePorts, "kubernetes health check service ports"),
		xtables.NewEntry(xtables.Filter, "INPUT", chainExternal, external, fresh),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainFirewall, firewall, fresh),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainForward, "kubernetes forwarding rules"),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainServices, services, fresh),
		xtables.NewEntry(xtables.Filter, "FORWARD", chainExternal, external, fresh),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainFirewall, firewall, fresh),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainServices, services, fresh),
		xtables.NewEntry(xtables.Filter, "OUTPUT", chainExternal, external, fresh),
		xtables.NewEntry(xtables.NAT, "PREROUTING", chainServices, services),
		xtables.NewEntry(xtables.NAT, "OUTPUT", chainServices, services),
		xtables.NewEntry(xtables.NAT, "POSTROUTING", chainPostrouting, "kubernetes postrouting rules"),
	}
	if !n.liberal {
		all = append(all, xtables.NewEntry(xtables.Filter, "INPUT", chainInvalid, ""))
	}
	if n.localhost {
		all = append(all, xtables.NewEntry(xtables.Filter, "INPUT", chainLocalnet, ""),
			xtables.NewEntry(xtables.Filter, "OUTPUT", chainLocalnet, ""))
	}
	return all
}

// nodeRules holds the settings for the rules that do not depend on Services.
type nodeRules struct {
	family lab.Family
	// mark requests masquerading.
	mark uint32
	// localhost is set if NodePorts answer on 127.0.0.1, which makes loopback addresses routable.
	localhost bool
	// randomFully is set if the kernel can pick the source ports of masqueraded connections at random.
	randomFully bool
	// liberal is set if connection tracking accepts out-of-window TCP segments as valid.
	liberal bool
	// podRange is the source range of all pods. Invalid means that it is unknown.
	podRange netip.Prefix
}

// filterChains returns the fixed chains of the filter table.
func (n *nodeRules) filterChains() []xtables.Chain {
	forward := xtables.Chain{Name: chainForward}
	var all []xtables.Chain
	if !n.liberal {
		// An out-of-window segment of a pod is not translated: a client that received it would reset its connection.
		// What others send may be one half of a connection whose other half takes another way.
		invalid := []xtables.Part{xtables.State("INVALID"), xtables.Drop}
		if n.podRange.IsValid() {
			invalid = append([]xtables.Part{xtables.From(n.podRange)}, invalid...)
		}
		forward.Add(invalid...)
		input := xtables.Chain{Name: chainInvalid}
		input.Add(invalid...)
		all = append(all, input)
	}
	forward.AddForward(n.mark)
	all = append(all, forward)
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
	mark.Add(xtables.SetMark(n.mark))

	masquerade := xtables.Masquerade
	if n.randomFully {
		masquerade = xtables.MasqueradeFully
	}
	post := xtables.Chain{Name: chainPostrouting}
	post.AddMasquerade(n.mark, masquerade)
	return []xtables.Chain{mark, post}
}

// nodePortEntry returns the last rules of nat KUBE-SERVICES, which look up NodePorts on addrs; nil means all local
// addresses.
func (n *nodeRules) nodePortEntry(addrs []netip.Addr) []xtables.Rule {
	about := xtables.Comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
	if addrs == nil {
		var except xtables.Part
		if !n.localhost {
			except = xtables.NotTo(nodeaddr.Loopback(n.family))
		}
		return []xtables.Rule{xtables.NewRule(about, xtables.ToLocal, except, xtables.Jump(chainNodePorts))}
	}
	rules := []xtables.Rule{}
	for _, a := range addrs {
		rules = append(rules, xtables.NewRule(about, xtables.ToRange(a), xtables.Jump(chainNodePorts)))
	}
	return rules
}
