// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// change is a step from one set of rules to another that leaves no gap. A rule of the filter table only ever catches
// what the nat table does not redirect, so new filter rules come first, and old ones go last: at every moment a packet
// for a Service is redirected, or stopped, as before or as after.
type change struct {
	before, nat, after xtables.Transaction
}

func newChange() *change {
	return &change{
		before: xtables.Transaction{Table: xtables.Filter},
		nat:    xtables.Transaction{Table: xtables.NAT},
		after:  xtables.Transaction{Table: xtables.Filter},
	}
}

func (c *change) transactions() []*xtables.Transaction {
	return []*xtables.Transaction{&c.before, &c.nat, &c.after}
}

// swap is what a Service contributed before and contributes now; nil is nothing.
type swap struct{ old, new *fragment }

// delta is the change that swaps fragments, where the rest stays.
func delta(swaps []swap) *change {
	c := newChange()
	for _, s := range swaps {
		old, new := s.old, s.new
		if old == nil {
			old = &fragment{}
		}
		if new == nil {
			new = &fragment{}
		}
		for ch := range chains {
			c.swapIn(ch, old[ch], new[ch])
		}
	}
	return c
}

// swapIn replaces a Service's rules in one chain. In the nat table their order matters, so all are written anew.
func (c *change) swapIn(ch chain, old, new []xtables.Rule) {
	if slices.Equal(old, new) {
		return
	}
	from, to := &c.nat, &c.nat
	if ch.table() == xtables.Filter {
		from, to = &c.after, &c.before
		old, new = without(old, new), without(new, old)
	}
	for _, r := range old {
		from.Remove(ch.name(), r)
	}
	for _, r := range new {
		to.Append(ch.name(), r)
	}
}

func without(a, b []xtables.Rule) []xtables.Rule {
	return slices.DeleteFunc(slices.Clone(a), func(r xtables.Rule) bool { return slices.Contains(b, r) })
}

// tables are what the kernel holds.
type tables struct{ filter, nat *xtables.Saved }

// rebuild is the change from whatever the tables hold to the given rules of each chain.
func rebuild(rules *[chains][]xtables.Rule, held tables) *change {
	c := newChange()
	for ch := range chains {
		if ch.table() == xtables.NAT {
			c.nat.Write(ch.name(), rules[ch])
			continue
		}
		former := held.filter.Chains[ch.name()]
		c.before.Write(ch.name(), slices.Concat(rules[ch], former))
		if len(former) > 0 {
			c.after.Write(ch.name(), rules[ch])
		}
	}
	var last []jump
	for _, j := range slices.Backward(jumps) {
		saved, tx := held.filter, &c.before
		if j.to.table() == xtables.NAT {
			saved, tx = held.nat, &c.nat
		}
		switch {
		case len(saved.Jumps(j.from, j.to.name())) > 0:
		case j.last:
			last = append(last, j)
		default:
			tx.Insert(j.from, j.rule)
		}
	}
	for _, j := range last {
		c.nat.Append(j.from, j.rule)
	}
	return c
}

// removal takes everything of ours out of a table. A chain that a chain of somebody else jumps to is emptied only.
func removal(t xtables.TableName, saved *xtables.Saved) *xtables.Transaction {
	tx := &xtables.Transaction{Table: t}
	needed := map[string]bool{}
	for from, rules := range saved.Chains {
		for _, r := range rules {
			switch to := r.Target(); {
			case !ours(to):
			case builtIn(from):
				tx.Remove(from, r)
			default:
				needed[to] = true
			}
		}
	}
	for name := range saved.Chains {
		switch {
		case needed[name]:
			tx.Empty(name)
		case ours(name):
			tx.Delete(name)
		}
	}
	return tx
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
