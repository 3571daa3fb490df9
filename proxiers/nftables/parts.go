package nftables

import (
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"
)

// parts are what the table is made of, beyond the frame. Parts are compared by value: one that is to change is an old one
// that goes and a new one that comes.
type parts struct {
	sets     []affinitySet
	chains   []chain
	elements []element
}

// element is an element of a set, or of a map if it has a value.
type element struct {
	in         string // the set or map
	key, value string
	comment    string
}

// chain is a chain with its rules, one a line.
type chain struct{ name, rules string }

// affinitySet remembers clients for a while.
type affinitySet struct {
	name    string
	timeout time.Duration
}

// The longest comment that nft takes is 128 bytes with the final zero; a Service's name and that of its port may be longer.
const maxComment = 127

// write adds to a transaction the change from parts that go to parts that come. The order is that of references: an
// element may name a chain, and a rule a chain or a set, so what is named comes before it and goes after it.
func write(tx *knftables.Transaction, addrType string, gone, come parts) {
	for _, e := range gone.elements {
		tx.Delete(e.object())
	}
	for _, s := range come.sets {
		tx.Add(&knftables.Set{
			Name: s.name, Type: addrType, Timeout: &s.timeout,
			Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
		})
	}
	stays := map[string]bool{}
	for _, c := range come.chains {
		stays[c.name] = true
		tx.Add(&knftables.Chain{Name: c.name})
	}
	for _, c := range gone.chains {
		tx.Flush(&knftables.Chain{Name: c.name})
	}
	for _, c := range come.chains {
		for rule := range strings.Lines(c.rules) {
			tx.Add(&knftables.Rule{Chain: c.name, Rule: strings.TrimSpace(rule)})
		}
	}
	for _, e := range come.elements {
		tx.Add(e.object())
	}
	for _, c := range gone.chains {
		if !stays[c.name] {
			tx.Delete(&knftables.Chain{Name: c.name})
		}
	}
	for _, s := range gone.sets {
		tx.Delete(&knftables.Set{Name: s.name})
	}
}

func (e element) object() *knftables.Element {
	o := &knftables.Element{Key: []string{e.key}}
	if e.comment != "" {
		o.Comment = knftables.PtrTo(e.comment[:min(len(e.comment), maxComment)])
	}
	if e.value == "" {
		o.Set = e.in
	} else {
		o.Map, o.Value = e.in, []string{e.value}
	}
	return o
}

// add appends other parts.
func (p *parts) add(o parts) {
	p.sets = append(p.sets, o.sets...)
	p.chains = append(p.chains, o.chains...)
	p.elements = append(p.elements, o.elements...)
}

// sorted puts parts in order, so that the same change is always written in the same way.
func (p parts) sorted() parts {
	slices.SortFunc(p.sets, func(a, b affinitySet) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(p.chains, func(a, b chain) int { return strings.Compare(a.name, b.name) })
	return p
}
