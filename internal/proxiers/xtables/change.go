// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"fmt"
	"slices"
)

// Chain is a chain with its rules.
type Chain struct {
	Name  string
	Rules []Rule
}

// Add appends a rule.
func (c *Chain) Add(parts ...Part) { c.Rules = append(c.Rules, NewRule(parts...)) }

// AddMasquerade appends the rules that masquerade packets with a mark. They clear the mark first, because the packet
// may pass again inside the packet of a tunnel.
func (c *Chain) AddMasquerade(mark uint32, masquerade Part) {
	c.Add(NotMarked(mark), Return)
	c.Add(Part(fmt.Sprintf("-j MARK --xor-mark %#x", mark)))
	c.Add(Comment("kubernetes service traffic requiring SNAT"), masquerade)
}

// AddForward appends the rules that accept forwarded Service traffic. What is to be masqueraded has the mark.
func (c *Chain) AddForward(mark uint32) {
	c.Add(Comment("kubernetes forwarding rules"), Marked(mark), Accept)
	c.Add(Comment("kubernetes forwarding conntrack rule"), State("RELATED,ESTABLISHED"), Accept)
}

// Change is a change of the rules for Services that leaves no gap. A rule of the filter table catches only what the nat
// table does not translate. So new filter rules come first, and old ones go last: at every moment a packet for a
// Service is handled as before or as after the change.
type Change struct {
	Before Transaction // filter: new rules
	Fixed  Transaction // nat: the chains that do not depend on Services
	Write  [][]Chain   // nat: the chains of Services, by Service
	Shared Transaction // nat: the chains that lead to those of Services
	Drop   []string    // nat: unused chains
	After  Transaction // filter: old rules
}

// NewChange returns an empty change.
func NewChange() *Change {
	return &Change{
		Before: Transaction{Table: Filter}, Fixed: Transaction{Table: NAT}, Shared: Transaction{Table: NAT},
		After: Transaction{Table: Filter},
	}
}

// batch is the number of rules, or of chains to delete, in a transaction of the nf_tables back end. For every rule,
// iptables-nft walks a sorted list of all chains that the transaction mentions: with 5,000 Services of five endpoints,
// one transaction takes 19 s, and small ones a fifth of that. And a transaction is one netlink message of about 1 KB a
// rule, which an ordinary user's socket rejects beyond twice net.core.wmem_max (416 KiB).
const batch = 250

// Transactions returns the change in order. Each Service changes in one transaction, and so do the shared chains. The
// legacy back end writes the whole table in every transaction, so it gets one.
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
	for _, do := range []func(*Transaction, string){(*Transaction).declare, (*Transaction).Delete} {
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
