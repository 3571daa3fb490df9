// SPDX-License-Identifier: Apache-2.0

package xtables

import "slices"

// Chain is a chain with its rules.
type Chain struct {
	Name  string
	Rules []Rule
}

// Add appends a rule.
func (c *Chain) Add(parts ...Part) { c.Rules = append(c.Rules, NewRule(parts...)) }

// Change is a step from one set of rules for Services to another that leaves no gap. A rule of the filter table only
// ever catches what the nat table does not translate. So new filter rules come first, and old ones go last: at every
// moment a packet for a Service is translated, or stopped, as before or as after.
type Change struct {
	Before Transaction // filter: new rules
	Fixed  Transaction // nat: the chains that do not depend on Services
	Write  [][]Chain   // nat: the chains of Services, by Service
	Shared Transaction // nat: the chains that lead to those of Services
	Drop   []string    // nat: chains that nothing leads to any more
	After  Transaction // filter: rules that go
}

// NewChange returns an empty change.
func NewChange() *Change {
	return &Change{
		Before: Transaction{Table: Filter}, Fixed: Transaction{Table: NAT}, Shared: Transaction{Table: NAT},
		After: Transaction{Table: Filter},
	}
}

// Rewrite gives a shared chain exactly these rules. former are those that it has. In the filter table they stay until
// the nat table has changed.
func (c *Change) Rewrite(t TableName, chain string, rules, former []Rule) {
	if t == NAT {
		c.Shared.Write(chain, rules)
		return
	}
	c.Before.Write(chain, slices.Concat(rules, former))
	if len(former) > 0 {
		c.After.Write(chain, rules)
	}
}

// Enter adds the entries that are missing.
func (c *Change) Enter(entries []Entry, saved Tables) {
	Enter(entries, saved, func(t TableName) *Transaction {
		if t == NAT {
			return &c.Shared
		}
		return &c.Before
	})
}

// batch is how many rules, or chains to delete, the nf_tables back end gets at a time: for two reasons. For every rule
// of a transaction, iptables-nft walks a sorted list of the names of all chains that the transaction mentions: with
// 5,000 Services of five endpoints, one transaction takes 19 s, and small ones a fifth of that. And a transaction is
// one netlink message, about 1 KB a rule, which an ordinary user's socket does not take beyond twice net.core.wmem_max
// (416 KiB).
const batch = 250

// Transactions returns the change in order. Each Service is switched over at once, and so are the shared chains,
// whatever the number of transactions. The legacy back end writes the whole table with every transaction, so it gets
// one.
func (c *Change) Transactions(b Backend) []*Transaction {
	writes, drops := c.writes(), dropping(NAT, c.Drop)
	nat := slices.Concat([]*Transaction{&c.Fixed}, writes, []*Transaction{&c.Shared}, drops)
	if b == Legacy || len(writes) <= 1 && len(c.Drop) <= batch {
		nat = []*Transaction{Merge(NAT, nat...)}
	}
	return slices.Concat([]*Transaction{&c.Before}, nat, []*Transaction{&c.After})
}

// writes returns the chains of Services in batches. It does not divide a Service.
func (c *Change) writes() []*Transaction {
	var all []*Transaction
	first, rules := 0, 0
	for i, service := range c.Write {
		n := 0
		for _, ch := range service {
			n += len(ch.Rules)
		}
		if rules += n; rules > batch && i > first {
			all = append(all, writing(c.Write[first:i]))
			first, rules = i, n
		}
	}
	if first < len(c.Write) {
		all = append(all, writing(c.Write[first:]))
	}
	return all
}

func writing(services [][]Chain) *Transaction {
	tx := &Transaction{Table: NAT}
	for _, chains := range services {
		for _, ch := range chains {
			tx.Write(ch.Name, ch.Rules)
		}
	}
	return tx
}

// dropping deletes chains. They may lead to one another, so all are emptied before the first is deleted.
func dropping(t TableName, chains []string) []*Transaction {
	var all []*Transaction
	for _, do := range []func(*Transaction, string){(*Transaction).Empty, (*Transaction).Delete} {
		for part := range slices.Chunk(chains, batch) {
			tx := &Transaction{Table: t}
			for _, name := range part {
				do(tx, name)
			}
			all = append(all, tx)
		}
	}
	return all
}

// Without returns what a has and b lacks.
func Without[T comparable](a, b []T) []T {
	in := map[T]bool{}
	for _, x := range b {
		in[x] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return in[x] })
}
