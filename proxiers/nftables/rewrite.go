// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
)

// batch limits the operations of a transaction that the socket of an ordinary user must accept. A transaction is one
// netlink message of about 250 bytes per operation, and the limit is net.core.wmem_default (208 KiB).
const batch = 400

// ways returns alternative sequences of transactions that write the frame and all parts, the least disruptive first.
//
// The first is one transaction, so a packet meets either the old rules or the new ones, and it keeps the clients that
// endpoints remember. The kernel may reject it if the table has objects that another program made. The second deletes
// the table first, still in one transaction. The third uses many small transactions.
func (f *family) ways(former map[string][]string, all nft.Parts) [][]*knftables.Transaction {
	first := f.table.Transaction()
	f.clearTable(first, former, all)
	f.frame.Write(first, nft.Parts{}, all)
	ways := [][]*knftables.Transaction{{first}}
	if former != nil {
		second := f.table.Transaction()
		nft.Destroy(second)
		f.frame.Write(second, nft.Parts{}, all)
		ways = append(ways, []*knftables.Transaction{second})
	}
	return append(ways, f.inBatches(all))
}

// inBatches fills the table in small transactions. An object precedes its references, and the base chains come last, so
// that no packet meets an incomplete table.
func (f *family) inBatches(all nft.Parts) []*knftables.Transaction {
	begin, end := f.table.Transaction(), f.table.Transaction()
	nft.Destroy(begin)
	(&nft.Frame{Containers: f.frame.Containers}).Write(begin, nft.Parts{}, nft.Parts{})
	txs := []*knftables.Transaction{begin}
	next := func(part nft.Parts) {
		tx := f.table.Transaction()
		nft.Write(tx, nft.Parts{}, part)
		txs = append(txs, tx)
	}

	for part := range slices.Chunk(all.Containers, batch) {
		next(nft.Parts{Containers: part})
	}
	chains := slices.Concat(f.frame.Chains, all.Chains)
	var empty []nft.Chain
	for _, c := range chains {
		empty = append(empty, nft.NewChain(c.Name, c.Comment))
	}
	for part := range slices.Chunk(empty, batch) {
		next(nft.Parts{Chains: part})
	}
	for part := range slices.Chunk(chains, batch/2) { // two operations or more each
		next(nft.Parts{Chains: part})
	}
	for part := range slices.Chunk(all.Elements, batch) {
		next(nft.Parts{Elements: part})
	}
	for _, c := range f.frame.Bases {
		c.Add(end)
	}
	return append(txs, end)
}

// clearTable empties the table for the frame and all parts. What they name stays there. A packet that has begun with
// the old rules may look into a map after the change, and finds the elements of that time (nft_genmask_cur in
// include/net/netfilter/nf_tables.h): the new ones, or none if the map was deleted. It then enters a chain by its rules
// of before, of which a new chain has none. Sets of clients keep their elements.
func (f *family) clearTable(tx *knftables.Transaction, former map[string][]string, all nft.Parts) {
	tx.Add(&knftables.Table{})
	if former == nil {
		return
	}
	tx.Flush(&knftables.Table{}) // deletes all rules of the table
	stays, clients := sets.New[string](), sets.New[string]()
	for _, c := range slices.Concat(f.frame.Containers, all.Containers) {
		if stays.Insert(c.Name); c.Timeout > 0 {
			clients.Insert(c.Name)
		}
	}
	empty := func(name string, o knftables.Object) {
		if !clients.Has(name) {
			tx.Flush(o) // older kernels release the chains that a map leads to only when its elements are deleted
		}
		if !stays.Has(name) {
			tx.Delete(o)
		}
	}
	for _, name := range former["set"] {
		empty(name, &knftables.Set{Name: name})
	}
	for _, name := range former["map"] {
		empty(name, &knftables.Map{Name: name})
	}
	chains := sets.New[string]()
	for _, c := range slices.Concat(f.frame.Chains, all.Chains) {
		chains.Insert(c.Name)
	}
	for _, c := range f.frame.Bases {
		chains.Insert(c.Name)
	}
	for _, name := range former["chain"] {
		if !chains.Has(name) {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}
