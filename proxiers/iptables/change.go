// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// change is a step from one set of rules to another that leaves no gap. A rule of the filter table only ever catches
// what the nat table does not translate. So new filter rules come first, and old ones go last: at every moment a packet
// for a Service is translated, or stopped, as before or as after.
type change struct {
	before xtables.Transaction // filter: what is new
	fixed  xtables.Transaction // nat: the chains that do not depend on Services
	write  [][]chain           // nat: the chains of Services, by Service
	shared xtables.Transaction // nat: the chains that lead to those of Services
	drop   []string            // nat: chains that nothing leads to any more
	after  xtables.Transaction // filter: what is to go
}

func newChange() *change {
	return &change{
		before: xtables.Transaction{Table: xtables.Filter},
		fixed:  xtables.Transaction{Table: xtables.NAT},
		shared: xtables.Transaction{Table: xtables.NAT},
		after:  xtables.Transaction{Table: xtables.Filter},
	}
}

// batch is how many rules, or chains to delete, the nf_tables back end gets at a time: for two reasons. For every rule
// of a transaction, iptables-nft walks a sorted list of the names of all chains that the transaction mentions: with
// 5,000 Services of five endpoints, one transaction takes 19 s, and small ones a fifth of that. And a transaction is
// one netlink message, about 1 KB a rule, which an ordinary user's socket does not take beyond twice net.core.wmem_max
// (416 KiB).
const batch = 250

// transactions puts the change in order. Each Service is switched over at once, and so are the shared chains, whatever
// the number of transactions. The legacy back end writes the whole table with every transaction, so it gets one.
func (c *change) transactions(b Backend) []*xtables.Transaction {
	writes, drops := c.writes(), dropping(xtables.NAT, c.drop)
	nat := slices.Concat([]*xtables.Transaction{&c.fixed}, writes, []*xtables.Transaction{&c.shared}, drops)
	if b == Legacy || len(writes) <= 1 && len(c.drop) <= batch {
		nat = []*xtables.Transaction{xtables.Merge(xtables.NAT, nat...)}
	}
	return slices.Concat([]*xtables.Transaction{&c.before}, nat, []*xtables.Transaction{&c.after})
}

// writes are the chains of Services in batches. A Service is not divided.
func (c *change) writes() []*xtables.Transaction {
	var all []*xtables.Transaction
	first, rules := 0, 0
	for i, service := range c.write {
		n := 0
		for _, ch := range service {
			n += len(ch.rules)
		}
		if rules += n; rules > batch && i > first {
			all = append(all, writing(c.write[first:i]))
			first, rules = i, n
		}
	}
	if first < len(c.write) {
		all = append(all, writing(c.write[first:]))
	}
	return all
}

func writing(services [][]chain) *xtables.Transaction {
	tx := &xtables.Transaction{Table: xtables.NAT}
	for _, chains := range services {
		for _, ch := range chains {
			tx.Write(ch.name, ch.rules)
		}
	}
	return tx
}

// dropping deletes chains. They may lead to one another, so all are emptied before the first is deleted.
func dropping(t xtables.TableName, chains []string) []*xtables.Transaction {
	var all []*xtables.Transaction
	for part := range slices.Chunk(chains, batch) {
		tx := &xtables.Transaction{Table: t}
		for _, name := range part {
			tx.Empty(name)
		}
		all = append(all, tx)
	}
	for part := range slices.Chunk(chains, batch) {
		tx := &xtables.Transaction{Table: t}
		for _, name := range part {
			tx.Delete(name)
		}
		all = append(all, tx)
	}
	return all
}

// delta is the change that replaces fragments and the tail of nat KUBE-SERVICES, where the rest stays.
func delta(gone, come []*fragment, oldTail, newTail []xtables.Rule) *change {
	c := newChange()
	c.ownChains(gone, come)
	for sc := range sharedChains {
		lost, won := contributions(gone, sc), contributions(come, sc)
		from, to := &c.before, &c.after
		if sc.table() == xtables.NAT {
			from, to = &c.shared, &c.shared
		}
		for _, r := range without(won, lost) {
			from.Insert(sc.name(), r)
		}
		for _, r := range without(lost, won) {
			to.Remove(sc.name(), r)
		}
	}
	if !slices.Equal(oldTail, newTail) {
		for _, r := range newTail {
			c.shared.Append(chainServices, r)
		}
		for _, r := range oldTail {
			c.shared.Remove(chainServices, r)
		}
	}
	return c
}

// ownChains writes the chains of come that differ from those of gone, and drops those that are in gone only.
func (c *change) ownChains(gone, come []*fragment) {
	old := map[string][]xtables.Rule{}
	for _, f := range gone {
		for _, ch := range f.chains {
			old[ch.name] = ch.rules
		}
	}
	for _, f := range come {
		var write []chain
		for _, ch := range f.chains {
			rules, existed := old[ch.name]
			delete(old, ch.name)
			if !existed || !slices.Equal(rules, ch.rules) {
				write = append(write, ch)
			}
		}
		if write != nil {
			c.write = append(c.write, write)
		}
	}
	for name := range old {
		c.drop = append(c.drop, name)
	}
	slices.Sort(c.drop)
}

func contributions(fs []*fragment, sc sharedChain) []xtables.Rule {
	var out []xtables.Rule
	for _, f := range fs {
		out = append(out, f.shared[sc]...)
	}
	return out
}

// without is what a has and b has not.
func without[T comparable](a, b []T) []T {
	in := map[T]bool{}
	for _, x := range b {
		in[x] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return in[x] })
}

// rebuild is the change from whatever the kernel holds to d: all chains are written, those left over from a former
// start are deleted, and missing jumps are put in place.
func rebuild(d *desired, n *nodeRules, filter, nat *xtables.Saved) *change {
	c := newChange()
	for _, ch := range n.filterChains() {
		c.before.Write(ch.name, ch.rules)
	}
	for _, ch := range n.natChains() {
		c.fixed.Write(ch.name, ch.rules)
	}
	for sc := range sharedChains {
		rules := d.shared(sc)
		if sc.table() == xtables.NAT {
			c.shared.Write(sc.name(), rules)
			continue
		}
		former := filter.Chains[sc.name()]
		c.before.Write(sc.name(), slices.Concat(rules, former))
		if len(former) > 0 {
			c.after.Write(sc.name(), rules)
		}
	}
	keep := map[string]bool{}
	for _, s := range d.state.Services {
		chains := d.fragments[s].chains
		c.write = append(c.write, chains)
		for _, ch := range chains {
			keep[ch.name] = true
		}
	}
	for name := range nat.Chains {
		if perService(name) && !keep[name] {
			c.drop = append(c.drop, name)
		}
	}
	slices.Sort(c.drop)
	for _, j := range slices.Backward(n.jumps()) {
		saved, tx := filter, &c.before
		if j.table == xtables.NAT {
			saved, tx = nat, &c.shared
		}
		if len(saved.Jumps(j.from, j.to)) == 0 {
			tx.Insert(j.from, j.rule)
		}
	}
	return c
}

// removal takes everything of ours out of a table: first the jumps from the built-in chains, then the chains. A chain
// that a chain of somebody else jumps to is emptied only.
func removal(b Backend, t xtables.TableName, saved *xtables.Saved) []*xtables.Transaction {
	jumps := &xtables.Transaction{Table: t}
	needed := map[string]bool{}
	for from, rules := range saved.Chains {
		if ours(from) {
			continue
		}
		for _, r := range rules {
			switch to := r.Target(); {
			case !ours(to):
			case builtIn(from):
				jumps.Remove(from, r)
			default:
				needed[to] = true
			}
		}
	}
	var drop []string
	for name := range saved.Chains {
		switch {
		case needed[name]:
			jumps.Empty(name)
		case ours(name):
			drop = append(drop, name)
		}
	}
	slices.Sort(drop)
	all := append([]*xtables.Transaction{jumps}, dropping(t, drop)...)
	if b == Legacy || len(drop) <= batch {
		all = []*xtables.Transaction{xtables.Merge(t, all...)}
	}
	return all
}

func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}
