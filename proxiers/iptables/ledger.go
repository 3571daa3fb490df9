// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// ledger is what the kernel must hold for the Services of a state.
type ledger struct {
	kit.Rendered[*xtables.Fragment]
	// tail holds the last rules of nat KUBE-SERVICES, which lead to the NodePorts.
	tail []xtables.Rule
}

// update advances the ledger to another state, and returns the change.
func (l *ledger) update(state *model.State, tail []xtables.Rule, r *renderer) *xtables.Change {
	c := layout(tail).Delta(l.Advance(state, nil, r.render))
	if !slices.Equal(l.tail, tail) {
		for _, rule := range tail {
			c.Shared.Append(chainServices, rule)
		}
		for _, rule := range l.tail {
			c.Shared.Remove(chainServices, rule)
		}
	}
	l.tail = tail
	return c
}

// rebuild fills an empty ledger, and returns the change from whatever the tables hold.
func (l *ledger) rebuild(state *model.State, tail []xtables.Rule, r *renderer, n *nodeRules,
	tables xtables.Tables) *xtables.Change {
	l.tail = tail
	l.Advance(state, nil, r.render)
	c := layout(tail).Rebuild(l.Fragments(), tables, n.jumps())
	c.DropStale(tables, dnat.PerService)
	for _, ch := range n.filterChains() {
		c.Before.Write(ch.Name, ch.Rules)
	}
	for _, ch := range n.natChains() {
		c.Fixed.Write(ch.Name, ch.Rules)
	}
	return c
}

// tables returns the own chains, without their rules, and the jumps to them from the built-in ones.
func (l *ledger) tables(n *nodeRules) xtables.Tables {
	all := xtables.Tables{
		xtables.Filter: {Chains: map[string][]xtables.Rule{}}, xtables.NAT: {Chains: map[string][]xtables.Rule{}},
	}
	own := func(t xtables.TableName, chains []xtables.Chain) {
		for _, c := range chains {
			all[t].Chains[c.Name] = nil
		}
	}
	own(xtables.Filter, n.filterChains())
	own(xtables.NAT, n.natChains())
	for _, f := range l.Fragments() {
		own(xtables.NAT, f.Chains)
	}
	for _, c := range layout(nil) {
		all[c.Table].Chains[c.Name] = nil
	}
	for _, e := range n.jumps() {
		chains := all[e.Table].Chains
		chains[e.From] = append(chains[e.From], e.Rule)
	}
	return all
}
