// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

// chainName is the name of a chain of a place.
type chainName struct{ place, backend, family, table, chain string }

// of returns the name of another chain in the same table.
func (n chainName) of(chain string) chainName {
	n.chain = chain
	return n
}

// met returns the chains that walks have met: those whose rules or policy were seen, and those that rules have led to.
func met(walks []*Walk) map[chainName]bool {
	all := map[chainName]bool{}
	for _, w := range walks {
		for _, s := range w.Steps {
			if s.Chain == "" {
				continue
			}
			at := chainName{s.Place, s.Backend, s.Family, s.Table, s.Chain}
			all[at] = true
			if verb, to, _ := strings.Cut(s.Verdict, " "); verb == "jump" || verb == "goto" {
				all[at.of(to)] = true
			}
		}
	}
	return all
}

// chains returns the chains that walks have met, and some of those that lead on from them. A ruleset of 10,000 Services
// has 10,000 of these.
func (t *Tracer) chains(walks []*Walk) (all []Chain) {
	met := met(walks)
	for _, p := range t.spots {
		if p.rules == nil {
			continue
		}
		for _, table := range p.rules.Tables {
			in := chainName{place: p.ns.Name(), backend: string(table.Backend), family: table.Family, table: table.Name}
			all = append(all, chainsOf(table, in, met)...)
		}
	}
	return all
}

// chainsOf returns the chains of a table that were met, and some of those that lead on from them, in their order.
func chainsOf(table *ruleset.Table, in chainName, met map[chainName]bool) (all []Chain) {
	shown, found := map[string]bool{}, map[string]Chain{}
	for _, c := range table.Chains {
		if !met[in.of(c.Name)] {
			continue
		}
		shown[c.Name] = true
		targets := targetsOf(table, c)
		some := choose(targets, func(name string) bool { return met[in.of(name)] })
		for _, name := range some {
			shown[name] = true
		}
		found[c.Name] = Chain{Targets: some, Others: len(targets) - len(some), Met: true}
	}
	for _, c := range table.Chains {
		if !shown[c.Name] {
			continue
		}
		one := found[c.Name]
		one.Place, one.Backend, one.Family, one.Table, one.Name = in.place, in.backend, in.family, in.table, c.Name
		one.Hook, one.Priority, one.About, one.Rules = c.Hook, c.Priority, c.Comment, len(c.Rules)
		all = append(all, one)
	}
	return all
}

// targetsOf returns the chains that the rules of a chain lead to, each once.
func targetsOf(table *ruleset.Table, c *ruleset.Chain) (names []string) {
	seen := map[string]bool{}
	for _, r := range c.Rules {
		for _, name := range table.Targets(r) {
			if !seen[name] && table.Chain(name) != nil {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// mostOthers is how many chains are listed that lead on from one and were not met.
const mostOthers = 3

// choose returns the targets that were met, and the first mostOthers of the others, in their order. If only one more
// is left, it returns that, too.
func choose(targets []string, met func(string) bool) (some []string) {
	others := 0
	for _, name := range targets {
		if !met(name) {
			others++
		}
	}
	room := mostOthers
	if others == mostOthers+1 {
		room++
	}
	for _, name := range targets {
		switch {
		case met(name):
			some = append(some, name)
		case room > 0:
			some = append(some, name)
			room--
		}
	}
	return some
}
