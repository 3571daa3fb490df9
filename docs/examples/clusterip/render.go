// SPDX-License-Identifier: Apache-2.0

package clusterip

import (
	"fmt"
	"io"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// words are those of an IP family in nft's language.
var words = map[lab.Family]struct{ table, address, unreachable string }{
	lab.V4: {"ip", "ipv4_addr", "icmp port-unreachable"},
	lab.V6: {"ip6", "ipv6_addr", "icmpv6 port-unreachable"},
}

// remove removes the table of a family, whether it is there or not.
const remove = "table %[1]s clusterip\ndelete table %[1]s clusterip\n"

// render writes the table of a family. One transaction replaces the rules and the elements that were there.
//
// The hooks stay: the kernel replaces rules atomically, but not a chain that has a hook. If the transaction deleted the
// table, a packet could pass the old chain after its rules had gone and the new one before its rules came.
//
// A packet that a pod sends to itself through a ClusterIP needs another source, or the pod would answer itself without
// the node: so hairpin flows are masqueraded.
func render(w io.Writer, family lab.Family, state *model.State) {
	f := words[family]
	var dnat, refuse strings.Builder
	for _, s := range state.Services {
		for _, p := range s.Ports {
			proto := strings.ToLower(string(p.ID.Protocol))
			match := fmt.Sprintf("%s daddr %s %s dport %d", f.table, p.ClusterIP, proto, p.Number)
			switch endpoints := p.Internal(); {
			case len(endpoints) > 0:
				fmt.Fprintf(&dnat, "  %s dnat to %s\n", match, choice(endpoints))
			case p.Anywhere:
				fmt.Fprintf(&refuse, "  %s drop\n", match) // internalTrafficPolicy Local, and no endpoint on this node
			default:
				fmt.Fprintf(&refuse, "  %s reject with %s\n", match, f.unreachable)
			}
		}
	}
	fmt.Fprintf(w, `table %[1]s clusterip { set hairpin { type %[4]s . %[4]s; }; }
flush table %[1]s clusterip
flush set %[1]s clusterip hairpin
table %[1]s clusterip {
 chain services {
%[2]s }
 chain unserved {
%[3]s }
 chain prerouting { type nat hook prerouting priority -100; jump services; }
 chain output { type nat hook output priority -100; jump services; }
 chain forward { type filter hook forward priority 0; jump unserved; }
 chain local { type filter hook output priority 0; jump unserved; }
 chain postrouting {
  type nat hook postrouting priority 100
  ct status dnat %[1]s saddr . %[1]s daddr @hairpin masquerade
 }
 set hairpin { type %[4]s . %[4]s; %[5]s}
}
`, f.table, &dnat, &refuse, f.address, hairpins(state))
}

// choice is an expression for one of the endpoints at random.
func choice(endpoints []model.Endpoint) string {
	var pairs []string
	for i, e := range endpoints {
		pairs = append(pairs, fmt.Sprintf("%d : %s . %d", i, e.Addr.Addr(), e.Addr.Port()))
	}
	return fmt.Sprintf("numgen random mod %d map { %s }", len(pairs), strings.Join(pairs, ", "))
}

// hairpins are the elements of the set that finds packets of an endpoint to itself.
func hairpins(state *model.State) string {
	var elements []string
	seen := map[string]bool{}
	for _, s := range state.Services {
		for _, p := range s.Ports {
			for _, e := range p.Internal() {
				if a := e.Addr.Addr().String(); !seen[a] {
					seen[a] = true
					elements = append(elements, a+" . "+a)
				}
			}
		}
	}
	if len(elements) == 0 {
		return ""
	}
	return fmt.Sprintf("elements = { %s } ", strings.Join(elements, ", "))
}
