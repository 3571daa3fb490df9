// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
)

// frame is the part of a table that stays as long as the enforcer does.
type frame struct {
	containers []knftables.Object // sets and maps
	bases      []base
}

// base is a chain where packets enter.
type base struct {
	chain
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
}

// table keeps a table of the kernel in step.
type table struct {
	*nft.Table
	frame frame
	held  *held // nil: not known, so that everything is to be written
}

// held is what the kernel holds beside the frame.
type held struct {
	chains   map[string][]string // rules by name
	elements map[nft.Element]bool
}

// program makes the table hold these chains and elements, in one transaction.
func (t *table) program(ctx context.Context, chains []chain, elements []nft.Element) error {
	next := &held{map[string][]string{}, map[nft.Element]bool{}}
	for _, c := range chains {
		next.chains[c.name] = c.rules
	}
	for _, e := range elements {
		next.elements[e] = true
	}
	was := t.held
	if was == nil {
		return t.startOver(ctx, next, chains, elements)
	}
	tx := t.Transaction()
	was.change(tx, next, chains, elements)
	return t.commit(ctx, tx, next)
}

// startOver writes everything. If there is a table, it is emptied and filled again, and only if the kernel does not
// take that, because it is of another make, it is replaced. In between a packet would be judged by a rule of the old
// table that looks into a map whose elements have just gone: a rule is chosen when the packet comes, an element when it
// is looked for.
func (t *table) startOver(ctx context.Context, next *held, chains []chain, elements []nft.Element) error {
	former, err := t.Holdings(ctx)
	if err != nil {
		return err
	}
	if former != nil {
		tx := t.Transaction()
		was := t.frame.empty(tx, former)
		t.frame.add(tx)
		was.change(tx, next, chains, elements)
		if err = t.commit(ctx, tx, next); err == nil || ctx.Err() != nil {
			return err
		}
	}
	tx := t.Transaction()
	nft.Destroy(tx)
	t.frame.add(tx)
	(&held{}).change(tx, next, chains, elements)
	return t.commit(ctx, tx, next)
}

// commit carries out the transaction that leads to next. Until that has succeeded, what the kernel holds is not known.
func (t *table) commit(ctx context.Context, tx *knftables.Transaction, next *held) error {
	t.held = nil
	if err := t.Run(ctx, tx); err != nil {
		return err
	}
	t.held = next
	return nil
}

// empty takes all rules and elements out of a table, and returns the chains that are left beside those of the frame.
func (f *frame) empty(tx *knftables.Transaction, former map[string][]string) *held {
	was := &held{chains: map[string][]string{}}
	tx.Flush(&knftables.Table{})
	for _, name := range former["set"] {
		tx.Flush(&knftables.Set{Name: name})
	}
	for _, name := range former["map"] {
		tx.Flush(&knftables.Map{Name: name})
	}
	for _, name := range former["chain"] {
		if !slices.ContainsFunc(f.bases, func(b base) bool { return b.name == name }) {
			was.chains[name] = nil
		}
	}
	return was
}

// change writes what differs. What is referred to comes first, and goes last.
func (h *held) change(tx *knftables.Transaction, next *held, chains []chain, elements []nft.Element) {
	for _, e := range slices.SortedFunc(maps.Keys(h.elements), compareElements) {
		if !next.elements[e] {
			tx.Delete(e.Object())
		}
	}
	differs := func(c chain) bool {
		old, existed := h.chains[c.name]
		return !existed || !slices.Equal(old, c.rules)
	}
	for _, c := range chains {
		if differs(c) {
			tx.Add(&knftables.Chain{Name: c.name, Comment: nft.Comment(c.comment)})
			tx.Flush(&knftables.Chain{Name: c.name})
		}
	}
	for _, c := range chains {
		if differs(c) {
			c.write(tx)
		}
	}
	for _, e := range elements {
		if !h.elements[e] {
			tx.Add(e.Object())
		}
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(h.chains)),
		func(name string) bool { _, stays := next.chains[name]; return stays })
	for _, name := range gone {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, name := range gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
}

func compareElements(a, b nft.Element) int {
	return slices.Compare([]string{a.In, a.Key, a.Value, a.Comment}, []string{b.In, b.Key, b.Value, b.Comment})
}

func (c chain) write(tx *knftables.Transaction) {
	for _, r := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.name, Rule: r})
	}
}

func (f *frame) add(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	for _, o := range f.containers {
		tx.Add(o)
	}
	for _, b := range f.bases {
		filter := knftables.FilterType
		tx.Add(&knftables.Chain{Name: b.name, Comment: nft.Comment(b.comment), Type: &filter, Hook: &b.hook,
			Priority: &b.priority})
		b.write(tx)
	}
}
