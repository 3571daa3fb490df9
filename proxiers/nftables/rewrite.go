// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/viplab/viplab/internal/proxiers/nft"
	"slices"

	"sigs.k8s.io/knftables"
)

// batch is how many operations a transaction may have that an ordinary user's socket is to take: it is one netlink
// message, some 250 bytes an operation, and the limit is net.core.wmem_default (208 KiB).
const batch = 400

// ways are sequences of transactions that make the table hold the frame and all the parts, from the gentlest to the
// surest.
//
// The first is one transaction, so a packet meets the former rules or the new ones, and keeps the clients that
// endpoints remember. The kernel may not take that, if there is something in the table that this proxier has not made:
// the second one deletes the table first, still in one transaction. The last one has many, none of them large.
func (f *family) ways(former map[string][]string, all parts) [][]*knftables.Transaction {
	first := f.table.Transaction()
	f.frame.clear(first, former, all)
	f.frame.fill(first, all)
	ways := [][]*knftables.Transaction{{first}}
	if former != nil {
		second := f.table.Transaction()
		nft.Destroy(second)
		f.frame.fill(second, all)
		ways = append(ways, []*knftables.Transaction{second})
	}
	return append(ways, f.inBatches(all))
}

// fill adds the frame and all the parts to an empty table.
func (f *frame) fill(tx *knftables.Transaction, all parts) {
	f.addContainers(tx)
	all.chains = slices.Concat(f.chains(), all.chains)
	write(tx, f.family, parts{}, all)
	addBaseChains(tx)
}

// inBatches fills the table little by little. What is referred to comes first, and the base chains come last: no packet
// gets there before all is in place.
func (f *family) inBatches(all parts) []*knftables.Transaction {
	var txs []*knftables.Transaction
	next := func() *knftables.Transaction {
		txs = append(txs, f.table.Transaction())
		return txs[len(txs)-1]
	}
	begin := next()
	nft.Destroy(begin)
	f.frame.addContainers(begin)

	chains := slices.Concat(f.frame.chains(), all.chains)
	for part := range slices.Chunk(all.containers, batch) {
		write(next(), f.frame.family, parts{}, parts{containers: part})
	}
	for part := range slices.Chunk(chains, batch) {
		tx := next()
		for _, c := range part {
			tx.Add(c.object())
		}
	}
	for part := range slices.Chunk(chains, batch/2) { // two operations or more each
		write(next(), f.frame.family, parts{}, parts{chains: part})
	}
	for part := range slices.Chunk(all.elements, batch) {
		write(next(), f.frame.family, parts{}, parts{elements: part})
	}
	addBaseChains(next())
	return txs
}

// clear empties the table, but for sets of clients that are still of use.
func (f *frame) clear(tx *knftables.Transaction, former map[string][]string, all parts) {
	tx.Add(&knftables.Table{})
	if former == nil {
		return
	}
	tx.Flush(&knftables.Table{}) // its rules
	ours := map[string]bool{}
	for _, c := range all.containers {
		ours[c.name] = c.timeout > 0
	}
	for _, kind := range []string{"set", "map"} {
		for _, name := range former[kind] {
			if !ours[name] {
				drop(tx, kind, name)
			}
		}
	}
	for _, name := range former["chain"] {
		tx.Delete(&knftables.Chain{Name: name})
	}
}

// drop deletes a set or map. Older kernels let go of the chains that a map leads to only as its elements are deleted,
// hence the flush.
func drop(tx *knftables.Transaction, kind, name string) {
	var o knftables.Object = &knftables.Set{Name: name}
	if kind == "map" {
		o = &knftables.Map{Name: name}
	}
	tx.Flush(o)
	tx.Delete(o)
}

func (f *frame) addContainers(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	for _, o := range f.containers() {
		tx.Add(o)
	}
}

func addBaseChains(tx *knftables.Transaction) {
	for _, c := range baseChains() {
		tx.Add(&knftables.Chain{Name: c.name, Type: &c.kind, Hook: &c.hook, Priority: &c.priority})
		for _, rule := range c.rules {
			tx.Add(&knftables.Rule{Chain: c.name, Rule: rule})
		}
	}
}
