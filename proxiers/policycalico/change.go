// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// accepted is the last rule of FORWARD. Other rules there come before it, so that what a proxier rejects stays
// rejected.
var accepted = xtables.NewRule(xtables.Comment("cali:accepted"), xtables.Comment("Policy explicitly accepted packet."),
	xtables.Marked(markAccept), xtables.Accept)

// change is the way from what was there to what is to be: in the filter table one transaction. Where it is not known
// what was there, tables tell.
func change(was, next *desired, tables xtables.Tables) []*xtables.Transaction {
	filter := &xtables.Transaction{Table: xtables.Filter}
	had := map[string][]xtables.Rule{}
	if was != nil {
		for _, c := range was.chains {
			had[c.name] = c.rules
		}
	} else {
		for name := range tables.Of(xtables.Filter).Chains {
			if ours(name) {
				had[name] = nil
			}
		}
	}
	for _, c := range next.chains {
		if rules, there := had[c.name]; was == nil || !there || !slices.Equal(rules, c.rules) {
			filter.Write(c.name, c.rules)
		}
		delete(had, c.name)
	}
	if was == nil {
		return append(enter(filter, tables), drop(filter, had)...)
	}
	return drop(filter, had)
}

// drop takes chains away that nothing leads to any more.
func drop(tx *xtables.Transaction, chains map[string][]xtables.Rule) []*xtables.Transaction {
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		tx.Delete(name)
	}
	return []*xtables.Transaction{tx}
}

// enter leads packets to the chains, where that is missing, before anything else. Sources are looked at first of all.
func enter(filter *xtables.Transaction, tables xtables.Tables) []*xtables.Transaction {
	first := &xtables.Transaction{Table: raw}
	c := prerouting()
	first.Write(c.name, c.rules)
	for _, e := range entries {
		tx := filter
		if e.table == raw {
			tx = first
		}
		if e.first(tables) {
			continue
		}
		for _, r := range tables.Of(e.table).Jumps(e.from, e.to) {
			tx.Remove(e.from, r)
		}
		tx.Insert(e.from, jump(e.to))
	}
	if !slices.ContainsFunc(tables.Of(xtables.Filter).Chains["FORWARD"], isAccepted) {
		filter.Append("FORWARD", accepted)
	}
	return []*xtables.Transaction{first}
}

func jump(to string) xtables.Rule {
	return xtables.NewRule(xtables.Comment("cali:"+hash(16, to)), xtables.Jump(to))
}

func isAccepted(r xtables.Rule) bool { return r.Option("--comment") == "cali:accepted" }

// owned is what belongs to this enforcer, whatever instance made it.
var owned = xtables.Ownership{
	Tables: []xtables.TableName{xtables.Filter, raw},
	Chain:  func(_ xtables.TableName, name string) bool { return ours(name) },
	Rule:   isAccepted,
}

// remove removes everything of this enforcer.
func (f *family) remove(ctx context.Context) error {
	f.release()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.next = nil, nil
	if err := owned.Remove(ctx, f.programs); err != nil {
		return err
	}
	return f.withSets(func(sets *ipset.Conn) error { return f.discardAll(ctx, sets) })
}

// discardAll takes all sets away, and waits until the kernel lets go of the rules that looked at them.
func (f *family) discardAll(ctx context.Context, sets *ipset.Conn) error {
	names, err := sets.Names(setPrefix(f.ip))
	if err != nil {
		return err
	}
	for {
		if err := f.discard(sets, names); err != nil || len(f.garbage) == 0 {
			return err
		}
		names = f.garbage
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond): // no event: the kernel frees deleted rules after a grace period of RCU
		}
	}
}
