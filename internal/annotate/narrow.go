// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"slices"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Narrow returns the rules without those that concern other Services only, and without the chains that these alone lead
// to. Rules that name no Service stay: they concern the packets of all. The elements of sets and maps, virtual servers
// and sockets stay only if they concern the Service.
func (b *Book) Narrow(r *ruleset.Ruleset, s store.Key) *ruleset.Ruleset {
	n := &ruleset.Ruleset{}
	for _, t := range r.Tables {
		n.Tables = append(n.Tables, b.table(t, s))
	}
	n.IPSets = b.sets(r.IPSets, s)
	for _, v := range r.Servers {
		if f := b.Find(v.String()); slices.Contains(f.services, s) {
			n.Servers = append(n.Servers, v)
		}
	}
	for _, x := range r.Sockets {
		f := b.Find(x.About)
		if slices.Contains(f.services, s) {
			n.Sockets = append(n.Sockets, x)
		}
	}
	return n
}

func (b *Book) table(t *ruleset.Table, s store.Key) *ruleset.Table {
	n := &ruleset.Table{
		Backend: t.Backend, Family: t.Family, Name: t.Name, Comment: t.Comment, Sets: b.sets(t.Sets, s),
	}
	for _, c := range t.Chains {
		copied := *c
		copied.Rules = nil
		for _, rule := range c.Rules {
			if b.find(rule.Text, c.Name).Concerns(s) {
				copied.Rules = append(copied.Rules, rule)
			}
		}
		n.Chains = append(n.Chains, &copied)
	}
	for prune(n) {
	}
	seen := map[*ruleset.Chain]bool{}
	for _, c := range n.Chains {
		if c.Hook != "" {
			n.Reached(c, seen)
		}
	}
	n.Chains = slices.DeleteFunc(n.Chains, func(c *ruleset.Chain) bool { return !seen[c] || len(c.Rules) == 0 })
	return n
}

// prune removes the rules that lead to empty chains only. It reports whether it removed some.
func prune(n *ruleset.Table) (removed bool) {
	empty := func(name string) bool { return len(n.Chain(name).Rules) == 0 }
	for _, c := range n.Chains {
		before := len(c.Rules)
		c.Rules = slices.DeleteFunc(c.Rules, func(r *ruleset.Rule) bool {
			return len(r.Jumps) > 0 && !slices.ContainsFunc(r.Jumps, func(name string) bool { return !empty(name) })
		})
		removed = removed || len(c.Rules) < before
	}
	return removed
}

// sets returns sets with only the elements that concern a Service, and the sets that were empty before.
func (b *Book) sets(sets []*ruleset.Set, s store.Key) []*ruleset.Set {
	var kept []*ruleset.Set
	for _, set := range sets {
		n := *set
		n.Elements = nil
		for _, e := range set.Elements {
			if b.Find(e.Text).Concerns(s) {
				n.Elements = append(n.Elements, e)
			}
		}
		if len(n.Elements) > 0 {
			kept = append(kept, &n)
		}
	}
	return kept
}
