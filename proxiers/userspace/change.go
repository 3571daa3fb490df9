// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// swap is what a Service contributed before and contributes now; nil is nothing.
type swap struct{ old, new *fragment }

// delta is the change that swaps fragments, where the rest stays.
func delta(swaps []swap) *xtables.Change {
	c := xtables.NewChange()
	for _, s := range swaps {
		old, new := s.old, s.new
		if old == nil {
			old = &fragment{}
		}
		if new == nil {
			new = &fragment{}
		}
		for ch := range chains {
			swapIn(c, ch, old[ch], new[ch])
		}
	}
	return c
}

// swapIn replaces a Service's rules in one chain. In the nat table their order matters, so all are written anew.
func swapIn(c *xtables.Change, ch chain, old, new []xtables.Rule) {
	if slices.Equal(old, new) {
		return
	}
	from, to := &c.Shared, &c.Shared
	if ch.table() == xtables.Filter {
		from, to = &c.After, &c.Before
		old, new = xtables.Without(old, new), xtables.Without(new, old)
	}
	for _, r := range old {
		from.Remove(ch.name(), r)
	}
	for _, r := range new {
		to.Append(ch.name(), r)
	}
}

// rebuild is the change from whatever the tables hold to the given rules of each chain.
func rebuild(rules *[chains][]xtables.Rule, saved xtables.Tables) *xtables.Change {
	c := xtables.NewChange()
	for ch := range chains {
		c.Rewrite(ch.table(), ch.name(), rules[ch], saved.Of(ch.table()).Chains[ch.name()])
	}
	c.Enter(entries, saved)
	return c
}

// swapsOf pairs the fragments of Services that are gone with those of Services that have come.
func swapsOf(gone []*model.Service, old map[*model.Service]*fragment, come []*model.Service,
	new map[*model.Service]*fragment) []swap {
	type name struct{ namespace, name string }
	at := map[name]int{}
	var swaps []swap
	for _, s := range gone {
		at[name{s.Namespace, s.Name}] = len(swaps)
		swaps = append(swaps, swap{old: old[s]})
	}
	for _, s := range come {
		if i, ok := at[name{s.Namespace, s.Name}]; ok {
			swaps[i].new = new[s]
			continue
		}
		swaps = append(swaps, swap{new: new[s]})
	}
	return swaps
}
