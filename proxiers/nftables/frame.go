// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/lab"
)

// The sets and maps. Keys are frontends (address . protocol . port), but for the two sets.
// The maps of endpoints are as many as there are endpoints to a frontend.
const (
	setClusterIPs   = "cluster-ips"          // addresses
	setHairpin      = "hairpin-connections"  // source . destination . protocol . port of an endpoint that talks to itself
	mapServiceIPs   = "service-ips"          // where a frontend's packets go
	mapShortCircuit = "short-circuit-ips"    // where those from the cluster itself go under externalTrafficPolicy Local
	mapLocalIPs     = "local-ips"            // where all others go then
	mapMasquerade   = "masquerade-ips"       // who gets this node's address as source
	mapNoEndpoints  = "no-endpoint-services" // what to do with packets that nobody serves
	mapFirewallIPs  = "firewall-ips"         // frontends that admit some sources only
)

// The chains of the frame that maps lead to.
const (
	chainExternalLocal   = "external-local"
	chainToNode          = "masquerade-to-node"
	chainToNodeFromLocal = "masquerade-if-from-node"
	chainReject          = "reject-chain"
	chainServices        = "services"
)

// frame is the part of the table that does not depend on Services.
type frame struct {
	family     lab.Family
	podRange   netip.Prefix   // of all pods; zero: not known
	nodePods   netip.Prefix   // of the node's own pods; zero: not known
	services   []netip.Prefix // ranges of ClusterIPs
	masquerade bool           // all traffic to ClusterIPs
}

func frontendType(f lab.Family) string { return nft.AddrType(f) + " . inet_proto . inet_service" }

// key is the frontend that a packet is sent to.
func key(f lab.Family) string { return nft.Word(f) + " daddr . meta l4proto . th dport" }

type baseChain struct {
	name     string
	kind     knftables.BaseChainType
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

// baseChains are where packets enter. The verdict on a new connection holds for all of it.
func baseChains() []baseChain {
	const fresh = "ct state new jump "
	return []baseChain{
		{"filter-prerouting-pre-dnat", knftables.FilterType, knftables.PreroutingHook, knftables.DNATPriority + "-10",
			[]string{fresh + "firewall-check"}},
		{"filter-output-pre-dnat", knftables.FilterType, knftables.OutputHook, knftables.DNATPriority + "-10",
			[]string{fresh + "firewall-check"}},
		{"nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, []string{"jump services"}},
		{"nat-output", knftables.NATType, knftables.OutputHook, knftables.DNATPriority, []string{"jump services"}},
		{"filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority,
			[]string{fresh + "service-endpoints-check"}},
		{"filter-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority,
			[]string{fresh + "service-endpoints-check", fresh + "cluster-ips-check"}},
		{"filter-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority,
			[]string{fresh + "service-endpoints-check", fresh + "cluster-ips-check"}},
		{"nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority,
			[]string{"ct status dnat jump masquerading"}},
	}
}

// chains are those that base chains and maps lead to.
func (f *frame) chains() []chain {
	to := key(f.family)
	return []chain{
		newChain("firewall-check", "sources that a load balancer address does not admit", to+" vmap @"+mapFirewallIPs),
		newChain("service-endpoints-check", "Services that nobody serves, or nobody here", to+" vmap @"+mapNoEndpoints),
		newChain("cluster-ips-check", "refuses other ports of ClusterIPs, and drops what goes to those of nobody",
			f.clusterIPsCheck()...),
		newChain(chainServices, "translates what goes to a Service", to+" vmap @"+mapServiceIPs),
		newChain(chainExternalLocal, "externalTrafficPolicy Local", f.externalLocal()...),
		newChain("masquerading", "translated traffic whose replies would not come back through this node",
			f.masquerading()...),
		newChain(chainToNode, "", "masquerade fully-random"),
		newChain(chainToNodeFromLocal, "", "fib saddr type local masquerade fully-random"),
		newChain(chainReject, "the verdict of an element cannot be reject, so it leads here", "reject"),
	}
}

// clusterIPsCheck gets what was not translated and goes to the ranges of ClusterIPs all the same.
func (f *frame) clusterIPsCheck() []string {
	lines := []string{nft.Word(f.family) + " daddr @" + setClusterIPs + " reject"}
	for _, p := range f.services {
		lines = append(lines, nft.Word(f.family)+" daddr "+p.String()+" drop")
	}
	return lines
}

// externalLocal is for frontends under externalTrafficPolicy Local. Traffic of the node and of its pods takes the short
// cut to all endpoints: it has not come through a load balancer that knows which nodes have some. A pod of another
// node has sent to this node, so it gets this node's endpoints (kubernetes#74383). A packet that finds nothing here
// keeps its destination, and is dropped for it later.
func (f *frame) externalLocal() []string {
	ip, to := nft.Word(f.family), key(f.family)
	var lines []string
	if f.nodePods.IsValid() {
		lines = append(lines, ip+" saddr "+f.nodePods.String()+" "+to+" vmap @"+mapShortCircuit)
	}
	return append(lines,
		"fib saddr type local "+to+" vmap @"+mapShortCircuit,
		to+" vmap @"+mapLocalIPs)
}

// masquerading gives connections this node's address as source, if their replies would not come back through it: those
// to ClusterIPs that are not from pods, those to other frontends, and those of an endpoint to itself. The port that a
// connection was made to has a type only where its protocol is known, hence a rule for each.
func (f *frame) masquerading() []string {
	ip := nft.Word(f.family)
	lines := []string{
		ip + " saddr . " + ip + " daddr . meta l4proto . th dport @" + setHairpin + " goto " + chainToNode,
	}
	switch clusterIP := "ct original " + ip + " daddr @" + setClusterIPs; {
	case f.masquerade:
		lines = append(lines, clusterIP+" goto "+chainToNode)
	case f.podRange.IsValid():
		lines = append(lines, clusterIP+" "+ip+" saddr != "+f.podRange.String()+" goto "+chainToNode)
	}
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		lines = append(lines, "meta l4proto "+proto+" ct original "+ip+" daddr . meta l4proto . ct original proto-dst "+
			"vmap @"+mapMasquerade)
	}
	return lines
}

// containers declare the sets and maps.
func (f *frame) containers() []knftables.Object {
	addr, frontend := nft.AddrType(f.family), frontendType(f.family)
	verdicts := func(name, comment string) *knftables.Map {
		return &knftables.Map{Name: name, Type: frontend + " : verdict", Comment: &comment}
	}
	return []knftables.Object{
		&knftables.Set{Name: setClusterIPs, Type: addr, Comment: knftables.PtrTo("ClusterIPs in use")},
		&knftables.Set{Name: setHairpin, Type: addr + " . " + frontend,
			Comment: knftables.PtrTo("endpoints on this node, to themselves")},
		verdicts(mapServiceIPs, "packets for Services"),
		verdicts(mapShortCircuit, "externalTrafficPolicy Local: from pods and this node"),
		verdicts(mapLocalIPs, "externalTrafficPolicy Local: from outside"),
		verdicts(mapMasquerade, "frontends whose traffic is masqueraded"),
		verdicts(mapNoEndpoints, "frontends that nobody serves, or nobody here"),
		verdicts(mapFirewallIPs, "frontends that admit some sources only"),
	}
}
