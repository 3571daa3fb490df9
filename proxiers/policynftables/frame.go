// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
)

// Neighbour discovery is not tracked, and IPv6 does not work without it. Pods are no routers.
const (
	discovery = "icmpv6 type " +
		"{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept"
	podDiscovery    = "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept"
	spoofed         = "spoofed source"
	tunnelled       = "tunnel of a pod"
	unknown         = "unknown pod"
	vxlanPort       = 4789 // RFC 7348
	routedPorts     = "cali*"
	egressPriority  = knftables.SNATPriority + "-20"
	ingressPriority = knftables.SNATPriority + "-10"
)

// policyFrame returns the frame of the table of policies. Ranges are those of the node's own pods.
func policyFrame(ranges []netip.Prefix) nft.Frame {
	var f nft.Frame
	for _, d := range directions {
		side, priority := "daddr", ingressPriority
		if d == policy.Egress {
			side, priority = "saddr", egressPriority
		}
		rules := []string{"ct state established,related accept", discovery, "fib saddr type local accept"}
		for _, ip := range families {
			f.Containers = append(f.Containers, nft.Container{
				Name: mapName(d, ip), Type: nft.AddrType(ip) + " : verdict", Comment: "pods of this node, by address",
			})
			rules = append(rules, fmt.Sprintf("%s %s vmap @%s", nft.Word(ip), side, mapName(d, ip)))
		}
		for _, r := range ranges {
			ip := nft.Word(lab.FamilyOf(r.Addr()))
			rules = append(rules, fmt.Sprintf("%s %s %s %s", ip, side, r, drop(d, unknown)))
		}
		f.Bases = append(f.Bases, nft.BaseChain{
			Chain: nft.NewChain(string(d), "what policies say of "+string(d), rules...),
			Kind:  knftables.FilterType, Hook: knftables.PostroutingHook, Priority: priority,
		})
	}
	f.Bases = append(f.Bases, vxlanFrame(ranges))
	return f
}

// vxlanFrame returns the chain that drops VXLAN packets of pods. It comes after conntrack: a node that masquerades may
// choose the port of VXLAN as the source of a flow, and the answers of a pod go there.
func vxlanFrame(ranges []netip.Prefix) nft.BaseChain {
	var rules []string
	for _, r := range ranges {
		rules = append(rules, fmt.Sprintf("%s saddr %s udp dport %d ct state new,invalid,untracked %s",
			nft.Word(lab.FamilyOf(r.Addr())), r, vxlanPort, drop(policy.Egress, tunnelled)))
	}
	return nft.BaseChain{
		Chain: nft.NewChain("tunnels", "pods make no VXLAN tunnels", rules...),
		Kind:  knftables.FilterType, Hook: knftables.PreroutingHook, Priority: "-150",
	}
}

// addSources adds to a frame the rules that drop packets from addresses of others. They apply to some devices; an empty
// pattern means all.
func addSources(f *nft.Frame, devices string) {
	var rules []string
	if devices != "" {
		rules = append(rules, fmt.Sprintf("iifname != %q accept", devices))
	}
	rules = append(rules, podDiscovery)
	for _, ip := range families {
		f.Containers = append(f.Containers, nft.Container{
			Name: portSet(ip), Type: "ifname . " + nft.AddrType(ip), Comment: "the address behind each port",
		})
		rules = append(rules, fmt.Sprintf("meta protocol %[1]s iifname . %[1]s saddr != @%[2]s %[3]s", nft.Word(ip),
			portSet(ip), drop(policy.Egress, spoofed)))
	}
	rules = append(rules, "meta l4proto { 4, 41 } "+drop(policy.Egress, tunnelled)) // IP and IPv6 in IP
	f.Bases = append(f.Bases, nft.BaseChain{
		Chain: nft.NewChain("sources", "pods send from their own addresses, and no IP in IP", rules...),
		Kind:  knftables.FilterType, Hook: knftables.PreroutingHook, Priority: "-300", // before conntrack
	})
}

var (
	directions = []policy.Direction{policy.Egress, policy.Ingress}
	families   = []lab.Family{lab.V4, lab.V6}
)

func mapName(d policy.Direction, f lab.Family) string { return string(d) + f.String()[1:] }
func portSet(f lab.Family) string                     { return "ports" + f.String()[1:] }

// portElements returns the elements that name the address behind each port.
func portElements(ports policy.Ports) []nft.Element {
	var all []nft.Element
	for a, dev := range ports {
		all = append(all, nft.Element{In: portSet(lab.FamilyOf(a)), Key: fmt.Sprintf("%q . %s", dev, a)})
	}
	slices.SortFunc(all, func(a, b nft.Element) int { return strings.Compare(a.Key, b.Key) })
	return all
}
