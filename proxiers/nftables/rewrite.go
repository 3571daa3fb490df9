// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
)

// batch limits the operations of a transaction that the socket of an ordinary user must accept. A transaction is one
// netlink message of about 250 bytes per operation, and the limit is net.core.wmem_default (208 KiB).
const batch = 400

// ways returns alternative sequences of transactions that write the frame and all parts, the least disruptive first.
//
// The first changes what packets meet in one transaction, and it keeps the clients that endpoints remember. The kernel
// may reject it if the table has objects that another program made. The second deletes the table first, in one
// transaction, too. The third uses many small transactions.
func (f *family) ways(former map[string][]string, all nft.Parts) [][]*knftables.Transaction {
	ways := [][]*knftables.Transaction{f.table.Replace(f.frame, former, all)}
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
