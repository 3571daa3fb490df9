// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// desired holds all rules of a node and family that depend on Services.
type desired struct {
	state     *model.State
	fragments map[*model.Service]*fragment
	// tail holds the last rules of nat KUBE-SERVICES, which lead to the NodePorts.
	tail []xtables.Rule
}

// shared holds the rules of a shared chain.
func (d *desired) shared(c sharedChain) []xtables.Rule {
	var rules []xtables.Rule
	for _, s := range d.state.Services {
		rules = append(rules, d.fragments[s].shared[c]...)
	}
	if c == natServices {
		rules = append(rules, d.tail...)
	}
	return rules
}

// tables returns the own chains, and the jumps to them from the built-in ones.
func (d *desired) tables(n *nodeRules) xtables.Tables {
	filter := &xtables.Saved{Chains: map[string][]xtables.Rule{}}
	nat := &xtables.Saved{Chains: map[string][]xtables.Rule{}}
	all := xtables.Tables{xtables.Filter: filter, xtables.NAT: nat}
	for _, c := range n.filterChains() {
		filter.Chains[c.Name] = c.Rules
	}
	for _, c := range n.natChains() {
		nat.Chains[c.Name] = c.Rules
	}
	for sc := range sharedChains {
		all[sc.table()].Chains[sc.name()] = d.shared(sc)
	}
	for _, f := range d.fragments {
		for _, c := range f.chains {
			nat.Chains[c.Name] = c.Rules
		}
	}
	for _, e := range n.jumps() {
		chains := all[e.Table].Chains
		chains[e.From] = append(chains[e.From], e.Rule)
	}
	return all
}

// next returns the successor of d. It reuses the fragments of unchanged Services. gone and come are the fragments that
// differ.
func (d *desired) next(state *model.State, tail []xtables.Rule, r *renderer) (n *desired, gone, come []*fragment) {
	lost, won := model.Diff(d.state, state)
	n = &desired{state: state, tail: tail, fragments: make(map[*model.Service]*fragment, len(state.Services))}
	for _, s := range state.Services {
		n.fragments[s] = d.fragments[s]
	}
	for _, s := range won {
		n.fragments[s] = r.render(s)
		come = append(come, n.fragments[s])
	}
	for _, s := range lost {
		gone = append(gone, d.fragments[s])
	}
	return n, gone, come
}
