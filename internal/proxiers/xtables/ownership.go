// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"context"
	"errors"
	"slices"
)

// Entry is a jump from a built-in chain to an own chain.
type Entry struct {
	Table    TableName
	From, To string
	Rule     Rule
	// Last is set if the rule goes to the end of the chain, not to its head.
	Last bool
}

// NewEntry makes an entry at the head of a built-in chain, with a comment unless it is empty.
func NewEntry(t TableName, from, to, comment string, match ...Part) Entry {
	if comment != "" {
		match = append(slices.Clip(match), Comment(comment))
	}
	return Entry{Table: t, From: from, To: to, Rule: NewRule(append(slices.Clip(match), Jump(to))...)}
}

// Missing reports whether the tables lack the entry.
func (e Entry) Missing(saved Tables) bool { return len(saved.Of(e.Table).Jumps(e.From, e.To)) == 0 }

// Enter adds the entries that are missing, in their order. tx returns the transaction of a table.
func Enter(entries []Entry, saved Tables, tx func(TableName) *Transaction) {
	for _, last := range []bool{false, true} {
		for _, e := range slices.Backward(entries) {
			switch {
			case e.Last != last || !e.Missing(saved):
			case last:
				tx(e.Table).Append(e.From, e.Rule)
			default:
				tx(e.Table).Insert(e.From, e.Rule)
			}
		}
	}
}

// Ownership identifies the parts of the tables that belong to a program.
type Ownership struct {
	Backend Backend
	Tables  []TableName
	// Chain reports whether a chain is an own one.
	Chain func(t TableName, name string) bool
	// Rule reports whether a rule of another chain is an own one, though it leads to no own chain. Nil means none is.
	Rule func(Rule) bool
}

// Remove removes everything that belongs to the program, in one go if it can. If that fails, it tries each table, so
// that a table that cannot be cleared keeps no other from being cleared. It ends with Close.
func (o Ownership) Remove(ctx context.Context, p *Programs) error {
	defer p.Close()
	saved, err := p.Save(ctx)
	if err != nil {
		return err
	}
	var all []*Transaction
	for _, t := range o.Tables {
		all = append(all, o.Removal(t, saved.Of(t))...)
	}
	if p.Restore(ctx, all...) == nil {
		return nil
	}
	if saved, err = p.Save(ctx); err != nil {
		return err
	}
	var errs []error
	for _, t := range o.Tables {
		errs = append(errs, p.Restore(ctx, o.Removal(t, saved.Of(t))...))
	}
	return errors.Join(errs...)
}

// Removal removes everything that belongs to the program from one table: first the jumps from the built-in chains, then
// the chains. A chain that a foreign chain jumps to is only emptied.
func (o Ownership) Removal(t TableName, saved *Saved) []*Transaction {
	jumps := &Transaction{Table: t}
	needed := map[string]bool{}
	for from, rules := range saved.Chains {
		if o.Chain(t, from) {
			continue
		}
		for _, r := range rules {
			to := r.Target()
			switch own := o.Chain(t, to); {
			case own && !BuiltIn(from):
				needed[to] = true
			case own || o.Rule != nil && o.Rule(r):
				jumps.Remove(from, r)
			}
		}
	}
	var drop []string
	for name := range saved.Chains {
		switch {
		case needed[name]:
			jumps.Write(name, nil)
		case o.Chain(t, name):
			drop = append(drop, name)
		}
	}
	slices.Sort(drop)
	all := append([]*Transaction{jumps}, dropping(t, drop)...)
	if o.Backend == Legacy || len(drop) <= batch {
		all = []*Transaction{Merge(t, all...)}
	}
	return all
}

// BuiltIn reports whether a chain is one of the kernel's own.
func BuiltIn(chain string) bool {
	return slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain)
}
