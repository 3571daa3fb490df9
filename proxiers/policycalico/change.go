// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"maps"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// accepted is the last rule of FORWARD. It follows all other rules, so that a proxier can still reject packets.
var accepted = xtables.NewRule(xtables.Comment("cali:accepted"), xtables.Comment("Policy explicitly accepted packet."),
	xtables.Marked(markAccept), xtables.Accept)

func isAccepted(r xtables.Rule) bool { return r.Option("--comment") == "cali:accepted" }

// change returns the change from one state to the next, in the filter table one transaction. If the former state is
// unknown, it starts from the tables.
func change(was, next *desired, tables xtables.Tables) []*xtables.Transaction {
	filter := &xtables.Transaction{Table: xtables.Filter}
	all := []*xtables.Transaction{filter}
	had := map[string][]xtables.Rule{}
	if was == nil {
		all = slices.Insert(all, 0, enter(filter, tables))
		for name := range tables.Of(xtables.Filter).Chains {
			if ours(name) {
				had[name] = nil
			}
		}
	} else {
		for _, c := range was.chains {
			had[c.Name] = c.Rules
		}
	}
	for _, c := range next.chains {
		if rules, there := had[c.Name]; was == nil || !there || !slices.Equal(rules, c.Rules) {
			filter.Write(c.Name, c.Rules)
		}
		delete(had, c.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		filter.Delete(name)
	}
	return all
}

// enter puts missing jumps before all other rules, and adds the rule accepted. It returns the transaction of the raw
// table, which comes first.
func enter(filter *xtables.Transaction, tables xtables.Tables) *xtables.Transaction {
	first := &xtables.Transaction{Table: raw}
	c := prerouting()
	first.Write(c.Name, c.Rules)
	for _, e := range entries {
		tx := filter
		if e.Table == raw {
			tx = first
		}
		if inFront(e, tables) {
			continue
		}
		for _, r := range tables.Of(e.Table).Jumps(e.From, e.To) {
			tx.Remove(e.From, r)
		}
		tx.Insert(e.From, e.Rule)
	}
	if !slices.ContainsFunc(tables.Of(xtables.Filter).Chains["FORWARD"], isAccepted) {
		filter.Append("FORWARD", accepted)
	}
	return first
}

// owned describes what belongs to this enforcer, from this or any earlier instance.
var owned = xtables.Ownership{
	Tables: []xtables.TableName{xtables.Filter, raw},
	Chain:  func(_ xtables.TableName, name string) bool { return ours(name) },
	Rule:   isAccepted,
}

func (f *family) Remove(ctx context.Context) error {
	f.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.next = nil, nil
	if err := owned.Remove(ctx, f.programs); err != nil {
		return err
	}
	return f.withSets(func(sets *ipset.Conn) error {
		names, err := sets.Names(setPrefix(f.ip))
		if err != nil {
			return err
		}
		f.garbage = nil
		return sets.DestroyAll(ctx, names...)
	})
}
