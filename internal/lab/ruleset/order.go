// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"slices"
	"strings"
)

// Hooks are the hooks that a packet can meet, in that order: it goes either to input, or to forward and postrouting.
// The node's own packets go to output and postrouting.
var Hooks = []string{"ingress", "prerouting", "input", "forward", "output", "postrouting", "egress"}

// Station is what a packet meets at a hook: a base chain, or a part of the kernel, which Kernel names.
type Station struct {
	Hook     string
	Priority int
	Table    *Table // nil for a part of the kernel
	Chain    *Chain
	Kernel   string
}

// At returns what a packet of a family (IP or IP6) meets at a hook, in that order. Of two stations with one priority
// the kernel asks the older first. Nothing tells which that is, and At puts legacy tables first.
func (r *Ruleset) At(hook, family string) []Station {
	var stations []Station
	for _, t := range r.Tables {
		for _, c := range t.Chains {
			if c.Hook == hook && t.serves(family) {
				stations = append(stations, Station{hook, c.Priority, t, c, ""})
			}
		}
	}
	stations = append(stations, r.kernel(hook, family)...)
	slices.SortStableFunc(stations, func(a, b Station) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.rank(), b.rank()))
	})
	return stations
}

func (s Station) rank() int {
	if s.Table != nil && s.Table.Backend == IptablesLegacy {
		return 0
	}
	return 1
}

// serves reports whether packets of a family (IP or IP6) pass through the table.
func (t *Table) serves(family string) bool {
	return t.Family != "arp" && (t.Family == family || t.Family != IP && t.Family != IP6)
}

// The priorities of connection tracking and IPVS: enum nf_ip_hook_priorities, and ip_vs_ops4 in the kernel's
// net/netfilter/ipvs/ip_vs_core.c.
const (
	priorityTracking = -200
	priorityConfirm  = 1<<31 - 1
	priorityServers  = 99 // of local input
	priorityOwn      = -98
	priorityReplies  = 100
)

// kernel returns the parts of the kernel that the ruleset makes work at a hook.
func (r *Ruleset) kernel(hook, family string) []Station {
	var stations []Station
	add := func(priority int, what string) {
		stations = append(stations, Station{Hook: hook, Priority: priority, Kernel: what})
	}
	if r.Tracks(family) {
		switch hook {
		case "prerouting", "output":
			add(priorityTracking, "connection tracking finds the packet's flow, or begins one")
		case "input", "postrouting":
			add(priorityConfirm, "connection tracking keeps the new flow")
		}
	}
	if len(r.Servers) > 0 {
		switch hook {
		case "input":
			add(priorityServers, "IPVS sends what is for a virtual server to one of its real servers")
		case "output":
			add(priorityOwn, "IPVS does so with what this node sends to a virtual server")
		case "forward":
			add(priorityReplies, "IPVS gives replies of real servers the address of the virtual server")
		}
	}
	return stations
}

// Tracks reports whether connection tracking works for a family: a NAT chain or a rule that asks for it makes it work.
func (r *Ruleset) Tracks(family string) bool {
	for _, t := range r.Tables {
		if !t.serves(family) {
			continue
		}
		for _, c := range t.Chains {
			if c.Type == "nat" || slices.ContainsFunc(c.Rules, (*Rule).tracks) {
				return true
			}
		}
	}
	return false
}

func (r *Rule) tracks() bool {
	return strings.HasPrefix(r.Text, "ct ") || strings.Contains(r.Text, " ct ") ||
		strings.Contains(r.Text, "conntrack") || strings.Contains(r.Text, "-m state")
}

// Reached returns the chains that packets can reach from a chain, itself first, in the order in which they meet them.
// It skips those that are in seen, and adds the others to it.
func (t *Table) Reached(from *Chain, seen map[*Chain]bool) []*Chain {
	if from == nil || seen[from] {
		return nil
	}
	seen[from] = true
	chains := []*Chain{from}
	for _, r := range from.Rules {
		for _, name := range t.Targets(r) {
			chains = append(chains, t.Reached(t.Chain(name), seen)...)
		}
	}
	return chains
}

// Targets returns the chains that a rule leads to, by itself or by the verdicts of a map.
func (t *Table) Targets(r *Rule) []string {
	names := slices.Clone(r.Jumps)
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	for _, name := range r.Sets {
		s := t.Set(name)
		if s == nil {
			continue
		}
		for _, e := range s.Elements {
			if e.Jump != "" && !known[e.Jump] {
				known[e.Jump] = true
				names = append(names, e.Jump)
			}
		}
	}
	return names
}
