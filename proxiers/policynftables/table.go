package policynftables

import (
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/proxiers/internal/nft"
)

// element is an element of a set, or of a map if it has a value.
type element struct{ in, key, value, comment string }

func (e element) object() *knftables.Element {
	o := &knftables.Element{Key: []string{e.key}}
	if e.comment != "" {
		o.Comment = comment(e.comment)
	}
	if e.value == "" {
		o.Set = e.in
	} else {
		o.Map, o.Value = e.in, []string{e.value}
	}
	return o
}

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
	elements map[element]bool
}

// program makes the table hold these chains and elements, in one transaction.
func (t *table) program(ctx context.Context, chains []chain, elements []element) error {
	next := &held{map[string][]string{}, map[element]bool{}}
	for _, c := range chains {
		next.chains[c.name] = c.rules
	}
	for _, e := range elements {
		next.elements[e] = true
	}
	tx, was := t.Transaction(), t.held
	if was == nil {
		destroy(tx)
		t.frame.add(tx)
		was = &held{}
	}
	was.change(tx, next, chains, elements)
	t.held = nil
	if err := t.Run(ctx, tx); err != nil {
		return err
	}
	t.held = next
	return nil
}

// change writes what differs. What is referred to comes first, and goes last.
func (h *held) change(tx *knftables.Transaction, next *held, chains []chain, elements []element) {
	for _, e := range slices.SortedFunc(maps.Keys(h.elements), compareElements) {
		if !next.elements[e] {
			tx.Delete(e.object())
		}
	}
	differs := func(c chain) bool {
		old, existed := h.chains[c.name]
		return !existed || !slices.Equal(old, c.rules)
	}
	for _, c := range chains {
		if differs(c) {
			tx.Add(&knftables.Chain{Name: c.name, Comment: comment(c.comment)})
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
			tx.Add(e.object())
		}
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(h.chains)), func(name string) bool { _, stays := next.chains[name]; return stays })
	for _, name := range gone {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, name := range gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
}

func compareElements(a, b element) int {
	return slices.Compare([]string{a.in, a.key, a.value, a.comment}, []string{b.in, b.key, b.value, b.comment})
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
		tx.Add(&knftables.Chain{Name: b.name, Comment: comment(b.comment), Type: &filter, Hook: &b.hook, Priority: &b.priority})
		b.write(tx)
	}
}

// destroy deletes the table, and does not mind if there is none.
func destroy(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
}

// comment is a remark for people; nft takes 127 bytes.
func comment(text string) *string {
	text = text[:min(len(text), 127)]
	return &text
}
