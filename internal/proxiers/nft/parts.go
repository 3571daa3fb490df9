// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/knftables"
)

// Parts are what a table is made of. Parts are compared by value: a changed one is an old one that goes and a new one
// that comes.
type Parts struct {
	Containers []Container
	Chains     []Chain
	Elements   []Element
}

// AddChain adds a chain.
func (p *Parts) AddChain(name, comment string, rules ...string) {
	p.Chains = append(p.Chains, NewChain(name, comment, rules...))
}

// AddElement adds an element without a comment. An empty value makes it one of a set.
func (p *Parts) AddElement(in, key, value string) {
	p.Elements = append(p.Elements, Element{In: in, Key: key, Value: value})
}

// Container is a set or map. Elements expire after the timeout; zero means never.
type Container struct {
	Name, Comment string
	Type          string // "KEY" for a set, "KEY : VALUE" for a map
	Timeout       time.Duration
}

func (c Container) object() knftables.Object {
	if strings.Contains(c.Type, " : ") {
		return &knftables.Map{Name: c.Name, Type: c.Type, Comment: comment(c.Comment)}
	}
	s := &knftables.Set{Name: c.Name, Type: c.Type, Comment: comment(c.Comment)}
	if c.Timeout > 0 {
		s.Timeout, s.Flags = &c.Timeout, []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}
	}
	return s
}

// Chain is a chain with its rules, one a line, and a comment that says what it is for.
type Chain struct{ Name, Comment, Rules string }

// NewChain makes a chain.
func NewChain(name, comment string, rules ...string) Chain {
	return Chain{name, comment, strings.Join(rules, "\n")}
}

func (c Chain) addRules(tx *knftables.Transaction) {
	for rule := range strings.Lines(c.Rules) {
		tx.Add(&knftables.Rule{Chain: c.Name, Rule: strings.TrimSpace(rule)})
	}
}

// BaseChain is a chain that packets enter from a hook.
type BaseChain struct {
	Chain
	Kind     knftables.BaseChainType
	Hook     knftables.BaseChainHook
	Priority knftables.BaseChainPriority
}

// Add adds the base chain with its rules.
func (c BaseChain) Add(tx *knftables.Transaction) {
	tx.Add(&knftables.Chain{Name: c.Name, Comment: comment(c.Comment), Type: &c.Kind, Hook: &c.Hook,
		Priority: &c.Priority})
	c.addRules(tx)
}

// Frame is the part of a table that never changes.
type Frame struct {
	Containers []Container
	Chains     []Chain
	Bases      []BaseChain
}

// Write adds a table with the frame and all parts, in place of the parts that go.
func (f *Frame) Write(tx *knftables.Transaction, gone, all Parts) {
	tx.Add(&knftables.Table{})
	Write(tx, gone, f.with(all))
	for _, c := range f.Bases {
		c.Add(tx)
	}
}

// with returns the parts with the containers and chains of the frame before them. Base chains are no parts.
func (f *Frame) with(p Parts) Parts {
	p.Containers = slices.Concat(f.Containers, p.Containers)
	p.Chains = slices.Concat(f.Chains, p.Chains)
	return p
}

// Write adds to a transaction the change from parts that go to parts that come. An element may name a chain, and a rule
// a chain or a set: what is named comes before what names it, and goes after it.
func Write(tx *knftables.Transaction, gone, come Parts) {
	for _, e := range gone.Elements {
		tx.Delete(e.Object())
	}
	for _, c := range come.Containers {
		tx.Add(c.object())
	}
	stays := map[string]bool{}
	for _, c := range come.Chains {
		stays[c.Name] = true
		tx.Add(&knftables.Chain{Name: c.Name, Comment: comment(c.Comment)})
	}
	for _, c := range gone.Chains {
		tx.Flush(&knftables.Chain{Name: c.Name})
	}
	for _, c := range come.Chains {
		c.addRules(tx)
	}
	for _, e := range come.Elements {
		tx.Add(e.Object())
	}
	for _, c := range gone.Chains {
		if !stays[c.Name] {
			tx.Delete(&knftables.Chain{Name: c.Name})
		}
	}
	for _, c := range gone.Containers {
		tx.Delete(c.object())
	}
}

// Change returns the transactions that change a table from parts that go to parts that come: one, or two if chains are
// new. A packet keeps to the rules of the time when it entered, but finds the elements of the time when a rule looks
// them up. A new element may lead it to a new chain, whose rules must be there before.
func (t *Table) Change(gone, come Parts) []*knftables.Transaction {
	first, rest := ahead(gone, come)
	change := t.Transaction()
	Write(change, gone, rest)
	return t.after(first, change)
}

// after returns the change, after a transaction that adds the parts that ahead has chosen if chains are among them.
func (t *Table) after(first Parts, change *knftables.Transaction) []*knftables.Transaction {
	if len(first.Chains) == 0 {
		return []*knftables.Transaction{change}
	}
	prepare := t.Transaction()
	Write(prepare, Parts{}, first)
	return []*knftables.Transaction{prepare, change}
}

// ahead splits the parts that come: new chains, and what their rules may name, are first.
func ahead(gone, come Parts) (first, rest Parts) {
	former := sets.New[string]()
	for _, c := range gone.Chains {
		former.Insert(c.Name)
	}
	rest.Elements = come.Elements
	for _, c := range come.Chains {
		if former.Has(c.Name) {
			rest.Chains = append(rest.Chains, c)
		} else {
			first.Chains = append(first.Chains, c)
		}
	}
	if len(first.Chains) > 0 {
		first.Containers = come.Containers
	} else {
		rest.Containers = come.Containers
	}
	return first, rest
}

// Diff returns the parts that only old has and those that only new has.
func Diff(old, new Parts) (gone, come Parts) {
	gone.Containers, come.Containers = diff(old.Containers, new.Containers)
	gone.Chains, come.Chains = diff(old.Chains, new.Chains)
	gone.Elements, come.Elements = diff(old.Elements, new.Elements)
	return gone, come
}

func diff[T comparable](old, new []T) (gone, come []T) {
	return slices.DeleteFunc(slices.Clone(old), sets.New(new...).Has),
		slices.DeleteFunc(slices.Clone(new), sets.New(old...).Has)
}
