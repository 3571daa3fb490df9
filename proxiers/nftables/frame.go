// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/lab"
)

// The sets and maps of the frame. The keys of maps are frontends (address . protocol . port).
const (
	setClusterIPs   = "cluster-ips"          // addresses
	setHairpin      = "hairpin-connections"  // an endpoint's to itself: source . destination . protocol . port
	mapServiceIPs   = "service-ips"          // frontend to chain
	mapShortCircuit = "short-circuit-ips"    // the same under policy Local, for traffic of the cluster itself
	mapLocalIPs     = "local-ips"            // the same under policy Local, for all other traffic
	mapMasquerade   = "masquerade-ips"       // frontends whose clients get this node's address as source
	mapNoEndpoints  = "no-endpoint-services" // frontend without endpoints to drop or reject
	mapFirewallIPs  = "firewall-ips"         // frontends that admit some sources only
)

// The chains of the frame.
const (
	chainFirewall        = "firewall-check"
	chainEndpoints       = "service-endpoints-check"
	chainClusterIPs      = "cluster-ips-check"
	chainServices        = "services"
	chainExternalLocal   = "external-local"
	chainMasquerading    = "masquerading"
	chainToNode          = "masquerade-to-node"
	chainToNodeFromLocal = "masquerade-if-from-node"
	chainReject          = "reject-chain"
)

// settings are the settings of a node that rules depend on.
type settings struct {
	family     lab.Family
	podRange   netip.Prefix   // of all pods; zero: unknown
	nodePods   netip.Prefix   // of the node's own pods; zero: unknown
	nodeAddr   netip.Addr     // the node's primary address
	services   []netip.Prefix // ranges of ClusterIPs
	masquerade bool           // masquerade all traffic to ClusterIPs
}

func frontendType(f lab.Family) string { return nft.AddrType(f) + " . inet_proto . inet_service" }

// key is the frontend that a packet is sent to.
func key(f lab.Family) string { return nft.Word(f) + " daddr . meta l4proto . th dport" }

// frame returns the part of the table that does not depend on Services. It judges only the first packet of a
// connection, whose verdict holds for the rest.
func (s *settings) frame() *nft.Frame {
	const fresh, services = "ct state new jump ", "jump " + chainServices
	const firewall, endpoints = fresh + chainFirewall, fresh + chainEndpoints
	const clusterIPs, masquerading = fresh + chainClusterIPs, "ct status dnat jump " + chainMasquerading
	const pre, dnat, post = knftables.DNATPriority + "-10", knftables.DNATPriority, knftables.FilterPriority
	f := &nft.Frame{Containers: s.containers(), Chains: s.chains()}
	add := func(name string, kind knftables.BaseChainType, hook knftables.BaseChainHook,
		priority knftables.BaseChainPriority, rules ...string) {
		c := nft.BaseChain{Chain: nft.NewChain(name, "", rules...), Kind: kind, Hook: hook, Priority: priority}
		f.Bases = append(f.Bases, c)
	}
	add("filter-prerouting-pre-dnat", knftables.FilterType, knftables.PreroutingHook, pre, firewall)
	add("filter-output-pre-dnat", knftables.FilterType, knftables.OutputHook, pre, firewall)
	add("nat-prerouting", knftables.NATType, knftables.PreroutingHook, dnat, services)
	add("nat-output", knftables.NATType, knftables.OutputHook, dnat, services)
	add("filter-input", knftables.FilterType, knftables.InputHook, post, endpoints)
	add("filter-forward", knftables.FilterType, knftables.ForwardHook, post, endpoints, clusterIPs)
	add("filter-output", knftables.FilterType, knftables.OutputHook, post, endpoints, clusterIPs)
	add("nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority, masquerading)
	return f
}

// chains returns the regular chains, to which base chains and maps lead.
func (s *settings) chains() []nft.Chain {
	to := key(s.family)
	return []nft.Chain{
		nft.NewChain(chainFirewall, "sources that a load balancer address does not admit", to+" vmap @"+mapFirewallIPs),
		nft.NewChain(chainEndpoints, "Services without endpoints, or without ones here", to+" vmap @"+mapNoEndpoints),
		nft.NewChain(chainClusterIPs, "refuses other ports of ClusterIPs, and drops packets to unused ClusterIPs",
			s.clusterIPsCheck()...),
		nft.NewChain(chainServices, "translates packets to Services", to+" vmap @"+mapServiceIPs),
		nft.NewChain(chainExternalLocal, "externalTrafficPolicy Local", s.externalLocal()...),
		nft.NewChain(chainMasquerading, "translated traffic whose replies would not come back through this node",
			s.masquerading()...),
		nft.NewChain(chainToNode, "", "masquerade fully-random"),
		nft.NewChain(chainToNodeFromLocal, "", "fib saddr type local masquerade fully-random"),
		nft.NewChain(chainReject, "the verdict of an element cannot be reject, so it leads here", "reject"),
	}
}

// clusterIPsCheck handles packets to the ranges of ClusterIPs that were not translated.
func (s *settings) clusterIPsCheck() []string {
	lines := []string{nft.Word(s.family) + " daddr @" + setClusterIPs + " reject"}
	for _, p := range s.services {
		lines = append(lines, nft.Word(s.family)+" daddr "+p.String()+" drop")
	}
	return lines
}

// externalLocal handles frontends under externalTrafficPolicy Local. Traffic of the node and of its pods goes directly
// to all endpoints, because it has not passed a load balancer that knows which nodes have endpoints. A pod of another
// node gets this node's endpoints (kubernetes#74383). A packet without an endpoint keeps its destination, and a later
// chain drops it.
func (s *settings) externalLocal() []string {
	ip, to := nft.Word(s.family), key(s.family)
	var lines []string
	if s.nodePods.IsValid() {
		lines = append(lines, ip+" saddr "+s.nodePods.String()+" "+to+" vmap @"+mapShortCircuit)
	}
	return append(lines,
		"fib saddr type local "+to+" vmap @"+mapShortCircuit,
		to+" vmap @"+mapLocalIPs)
}

// masquerading masquerades connections whose replies would not come back through this node: those to ClusterIPs that
// are not from pods, those to other frontends, and those of an endpoint to itself. The original port has a type only if
// the protocol is known, so there is a rule for each protocol.
func (s *settings) masquerading() []string {
	ip := nft.Word(s.family)
	lines := []string{
		ip + " saddr . " + ip + " daddr . meta l4proto . th dport @" + setHairpin + " goto " + chainToNode,
	}
	switch clusterIP := "ct original " + ip + " daddr @" + setClusterIPs; {
	case s.masquerade:
		lines = append(lines, clusterIP+" goto "+chainToNode)
	case s.podRange.IsValid():
		lines = append(lines, clusterIP+" "+ip+" saddr != "+s.podRange.String()+" goto "+chainToNode)
	}
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		lines = append(lines, "meta l4proto "+proto+" ct original "+ip+" daddr . meta l4proto . ct original proto-dst "+
			"vmap @"+mapMasquerade)
	}
	return lines
}

func (s *settings) containers() []nft.Container {
	addr, frontend := nft.AddrType(s.family), frontendType(s.family)
	verdicts := frontend + " : verdict"
	return []nft.Container{
		{Name: setClusterIPs, Type: addr, Comment: "ClusterIPs in use"},
		{Name: setHairpin, Type: addr + " . " + frontend, Comment: "endpoints on this node, to themselves"},
		{Name: mapServiceIPs, Type: verdicts, Comment: "packets for Services"},
		{Name: mapShortCircuit, Type: verdicts, Comment: "externalTrafficPolicy Local: from pods and this node"},
		{Name: mapLocalIPs, Type: verdicts, Comment: "externalTrafficPolicy Local: from outside"},
		{Name: mapMasquerade, Type: verdicts, Comment: "frontends whose traffic is masqueraded"},
		{Name: mapNoEndpoints, Type: verdicts, Comment: "frontends without endpoints, or without endpoints here"},
		{Name: mapFirewallIPs, Type: verdicts, Comment: "frontends that admit some sources only"},
	}
}
