// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
)

// Neighbour discovery is not tracked, and without it no packet finds its way. Pods are no routers.
const (
	discovery      = "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept"
	podDiscovery   = "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept"
	spoofed        = "spoofed source"
	tunnelled      = "tunnel of a pod"
	unknown        = "unknown pod"
	vxlanPort      = 4789 // RFC 7348
	routedPorts    = "cali*"
	egressPriority = knftables.SNATPriority + "-20"
	ingrPriority   = knftables.SNATPriority + "-10"
)

// policyFrame is that of the table of policies. Ranges are those of the node's own pods.
func policyFrame(ranges []netip.Prefix) frame {
	var f frame
	for _, d := range directions {
		hook := base{chain: chain{name: string(d)}, hook: knftables.PostroutingHook, priority: ingrPriority}
		side := "daddr"
		if d == policy.Egress {
			hook.priority, side = egressPriority, "saddr"
		}
		hook.comment = "what policies say of " + string(d)
		hook.add("ct state established,related accept")
		hook.add(discovery)
		hook.add("fib saddr type local accept")
		for _, ip := range []lab.Family{lab.V4, lab.V6} {
			f.containers = append(f.containers, &knftables.Map{
				Name: mapName(d, ip), Type: nft.AddrType(ip) + " : verdict", Comment: nft.Comment("pods of this node, by address"),
			})
			hook.add("%s %s vmap @%s", nft.Word(ip), side, mapName(d, ip))
		}
		for _, r := range ranges {
			hook.add("%s %s %s %s", nft.Word(lab.FamilyOf(r.Addr())), side, r, drop(d, unknown))
		}
		f.bases = append(f.bases, hook)
	}
	return f
}

// addSources adds to a frame what drops packets from others' addresses. Ports are the devices it is about; none means
// all.
func (f *frame) addSources(ports string) {
	c := base{chain: chain{name: "sources", comment: "pods send from their own addresses, and make no tunnels"},
		hook: knftables.PreroutingHook, priority: "-300"} // raw, before connection tracking
	if ports != "" {
		c.add("iifname != %q accept", ports)
	}
	c.add(podDiscovery)
	for _, ip := range []lab.Family{lab.V4, lab.V6} {
		f.containers = append(f.containers, &knftables.Set{
			Name: portSet(ip), Type: "ifname . " + nft.AddrType(ip), Comment: nft.Comment("which address is whose"),
		})
		c.add("meta protocol %s iifname . %s saddr != @%s %s", nft.Word(ip), nft.Word(ip), portSet(ip),
			drop(policy.Egress, spoofed))
	}
	c.add("meta l4proto { 4, 41 } %s", drop(policy.Egress, tunnelled)) // IP and IPv6 in IP
	c.add("udp dport %d %s", vxlanPort, drop(policy.Egress, tunnelled))
	f.bases = append(f.bases, c)
}

func mapName(d policy.Direction, f lab.Family) string { return string(d) + f.String()[1:] }
func portSet(f lab.Family) string                     { return "ports" + f.String()[1:] }

// portElements say which address is behind which port.
func portElements(ports policy.Ports) []nft.Element {
	var all []nft.Element
	for a, dev := range ports {
		all = append(all, nft.Element{In: portSet(lab.FamilyOf(a)), Key: fmt.Sprintf("%q . %s", dev, a)})
	}
	slices.SortFunc(all, compareElements)
	return all
}
