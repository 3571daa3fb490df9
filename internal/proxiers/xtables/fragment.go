// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/viplab/viplab/internal/proxiers/kit"
)

// Layout lists the chains to which all Services contribute. Within each the order of Services does not matter.
type Layout []SharedChain

// SharedChain is a chain of a Layout.
type SharedChain struct {
	Table TableName
	Name  string
	// Head and Tail are the rules before and after those of Services.
	Head, Tail []Rule
}

// maxShared is the maximum length of a Layout.
const maxShared = 6

// Fragment holds the rules of one Service.
type Fragment struct {
	// Chains are the Service's own, all in the nat table.
	Chains []Chain
	// Shared are its rules in the chains of the Layout, in order.
	Shared [maxShared][]Rule
}

// Share adds a rule to a shared chain unless it has it: an address may be both an external IP and a load balancer's.
func (f *Fragment) Share(chain int, parts ...Part) {
	if r := NewRule(parts...); !slices.Contains(f.Shared[chain], r) {
		f.Shared[chain] = append(f.Shared[chain], r)
	}
}

// Own adds a chain of the Service's own, unless it is empty.
func (f *Fragment) Own(c Chain) {
	if len(c.Rules) > 0 {
		f.Chains = append(f.Chains, c)
	}
}

// Delta returns the change that replaces fragments, and leaves the rest.
func (l Layout) Delta(swaps []kit.Swap[*Fragment]) *Change {
	c := NewChange()
	none := &Fragment{}
	for _, s := range swaps {
		old, new := cmp.Or(s.Old, none), cmp.Or(s.New, none)
		c.ownChains(old, new)
		for i, shared := range l {
			c.swap(shared, old.Shared[i], new.Shared[i])
		}
	}
	slices.Sort(c.Drop)
	return c
}

// ownChains writes the chains that differ, and drops those that only old has.
func (c *Change) ownChains(old, new *Fragment) {
	former := map[string][]Rule{}
	for _, ch := range old.Chains {
		former[ch.Name] = ch.Rules
	}
	var write []Chain
	for _, ch := range new.Chains {
		rules, existed := former[ch.Name]
		delete(former, ch.Name)
		if !existed || !slices.Equal(rules, ch.Rules) {
			write = append(write, ch)
		}
	}
	if write != nil {
		c.Write = append(c.Write, write)
	}
	for name := range former {
		c.Drop = append(c.Drop, name)
	}
}

// swap replaces a Service's rules in a shared chain. In the nat table their order matters, so it writes all of them.
func (c *Change) swap(chain SharedChain, old, new []Rule) {
	if slices.Equal(old, new) {
		return
	}
	from, to := &c.Shared, &c.Shared
	if chain.Table == Filter {
		from, to = &c.After, &c.Before
		old, new = slices.DeleteFunc(slices.Clone(old), sets.New(new...).Has),
			slices.DeleteFunc(slices.Clone(new), sets.New(old...).Has)
	}
	for _, r := range old {
		from.Remove(chain.Name, r)
	}
	if chain.Tail == nil {
		for _, r := range new {
			to.Append(chain.Name, r)
		}
		return
	}
	for _, r := range slices.Backward(new) {
		to.Insert(chain.Name, r)
	}
}

// Rebuild returns the change from whatever the tables hold to these fragments: it writes all chains and adds the
// missing entries.
func (l Layout) Rebuild(fragments []*Fragment, saved Tables, entries []Entry) *Change {
	c := NewChange()
	for i, shared := range l {
		rules := slices.Clone(shared.Head)
		for _, f := range fragments {
			rules = append(rules, f.Shared[i]...)
		}
		former := saved.Of(shared.Table).Chains[shared.Name]
		c.rewrite(shared.Table, shared.Name, append(rules, shared.Tail...), former)
	}
	for _, f := range fragments {
		if f.Chains != nil {
			c.Write = append(c.Write, f.Chains)
		}
	}
	Enter(entries, saved, func(t TableName) *Transaction {
		if t == NAT {
			return &c.Shared
		}
		return &c.Before
	})
	return c
}

// DropStale drops the saved chains of the nat table that belong to Services and that the change does not write.
func (c *Change) DropStale(saved Tables, ofServices func(chain string) bool) {
	keep := map[string]bool{}
	for _, chains := range c.Write {
		for _, ch := range chains {
			keep[ch.Name] = true
		}
	}
	for name := range saved.Of(NAT).Chains {
		if ofServices(name) && !keep[name] {
			c.Drop = append(c.Drop, name)
		}
	}
	slices.Sort(c.Drop)
}

// rewrite gives a shared chain exactly these rules. Its former rules stay in the filter table until the nat table has
// changed.
func (c *Change) rewrite(t TableName, chain string, rules, former []Rule) {
	if t == NAT {
		c.Shared.Write(chain, rules)
		return
	}
	c.Before.Write(chain, slices.Concat(rules, former))
	if len(former) > 0 {
		c.After.Write(chain, rules)
	}
}
