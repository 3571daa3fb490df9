// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// delta returns the change that replaces fragments and the tail of nat KUBE-SERVICES, and leaves the rest.
func delta(gone, come []*fragment, oldTail, newTail []xtables.Rule) *xtables.Change {
	c := xtables.NewChange()
	ownChains(c, gone, come)
	for sc := range sharedChains {
		lost, won := contributions(gone, sc), contributions(come, sc)
		from, to := &c.Before, &c.After
		if sc.table() == xtables.NAT {
			from, to = &c.Shared, &c.Shared
		}
		for _, r := range xtables.Without(won, lost) {
			from.Insert(sc.name(), r)
		}
		for _, r := range xtables.Without(lost, won) {
			to.Remove(sc.name(), r)
		}
	}
	if !slices.Equal(oldTail, newTail) {
		for _, r := range newTail {
			c.Shared.Append(chainServices, r)
		}
		for _, r := range oldTail {
			c.Shared.Remove(chainServices, r)
		}
	}
	return c
}

// ownChains writes the chains of come that differ from those of gone, and deletes those that only gone has.
func ownChains(c *xtables.Change, gone, come []*fragment) {
	old := map[string][]xtables.Rule{}
	for _, f := range gone {
		for _, ch := range f.chains {
			old[ch.Name] = ch.Rules
		}
	}
	for _, f := range come {
		var write []xtables.Chain
		for _, ch := range f.chains {
			rules, existed := old[ch.Name]
			delete(old, ch.Name)
			if !existed || !slices.Equal(rules, ch.Rules) {
				write = append(write, ch)
			}
		}
		if write != nil {
			c.Write = append(c.Write, write)
		}
	}
	for name := range old {
		c.Drop = append(c.Drop, name)
	}
	slices.Sort(c.Drop)
}

func contributions(fs []*fragment, sc sharedChain) []xtables.Rule {
	var out []xtables.Rule
	for _, f := range fs {
		out = append(out, f.shared[sc]...)
	}
	return out
}

// rebuild returns the change from any state of the kernel to d: it writes all chains, deletes those that an earlier
// instance left, and adds the missing jumps.
func rebuild(d *desired, n *nodeRules, saved xtables.Tables) *xtables.Change {
	c := xtables.NewChange()
	for _, ch := range n.filterChains() {
		c.Before.Write(ch.Name, ch.Rules)
	}
	for _, ch := range n.natChains() {
		c.Fixed.Write(ch.Name, ch.Rules)
	}
	for sc := range sharedChains {
		c.Rewrite(sc.table(), sc.name(), d.shared(sc), saved.Of(sc.table()).Chains[sc.name()])
	}
	keep := map[string]bool{}
	for _, s := range d.state.Services {
		chains := d.fragments[s].chains
		c.Write = append(c.Write, chains)
		for _, ch := range chains {
			keep[ch.Name] = true
		}
	}
	for name := range saved.Of(xtables.NAT).Chains {
		if perService(name) && !keep[name] {
			c.Drop = append(c.Drop, name)
		}
	}
	slices.Sort(c.Drop)
	c.Enter(n.jumps(), saved)
	return c
}
