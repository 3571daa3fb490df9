// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/knftables"
)

// Replace returns the transactions that write the frame and all parts in place of what the table holds (Holdings): one,
// or two if there is a table and chains are new. What the frame and the parts name stays there. A packet that has begun
// with the old rules may look into a map after the change, and finds the elements of that time (nft_genmask_cur in
// include/net/netfilter/nf_tables.h): the new ones, or none if the map was deleted. It then enters a chain by its rules
// of before, which a new chain must have got by then, as in Change. Sets of clients keep their elements.
func (t *Table) Replace(f *Frame, former map[string][]string, all Parts) []*knftables.Transaction {
	replace := t.Transaction()
	if former == nil {
		f.Write(replace, Parts{}, all)
		return []*knftables.Transaction{replace}
	}
	replace.Add(&knftables.Table{})
	replace.Flush(&knftables.Table{}) // deletes all rules of the table
	f.clearContainers(replace, former, all)
	f.clearChains(replace, former["chain"], all)
	f.Write(replace, Parts{}, all)

	var present Parts
	for _, name := range former["chain"] {
		present.AddChain(name, "")
	}
	first, _ := ahead(present, f.with(all))
	return t.after(first, replace)
}

// clearContainers empties sets and maps, and deletes those that neither the frame nor the parts name.
func (f *Frame) clearContainers(tx *knftables.Transaction, former map[string][]string, all Parts) {
	stays, clients := sets.New[string](), sets.New[string]()
	for _, c := range slices.Concat(f.Containers, all.Containers) {
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
}

// clearChains deletes the chains that neither the frame nor the parts name.
func (f *Frame) clearChains(tx *knftables.Transaction, former []string, all Parts) {
	stays := sets.New[string]()
	for _, c := range slices.Concat(f.Chains, all.Chains) {
		stays.Insert(c.Name)
	}
	for _, c := range f.Bases {
		stays.Insert(c.Name)
	}
	for _, name := range former {
		if !stays.Has(name) {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}
