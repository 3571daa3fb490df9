// SPDX-License-Identifier: Apache-2.0

package trace

// chains returns the chains that walks have met, and those that lead on from them.
func (t *Tracer) chains(walks []*Walk) (all []Chain) {
	type name struct{ place, backend, family, table, chain string }
	met := map[name]bool{}
	for _, w := range walks {
		for _, s := range w.Steps {
			if s.Chain != "" {
				met[name{s.Place, s.Backend, s.Family, s.Table, s.Chain}] = true
			}
		}
	}
	for _, p := range t.spots {
		if p.rules == nil {
			continue
		}
		for _, table := range p.rules.Tables {
			of := func(chain string) name {
				return name{p.ns.Name(), string(table.Backend), table.Family, table.Name, chain}
			}
			reachable := map[string]bool{}
			for _, c := range table.Chains {
				if !met[of(c.Name)] {
					continue
				}
				reachable[c.Name] = true
				for _, r := range c.Rules {
					for _, target := range table.Targets(r) {
						reachable[target] = true
					}
				}
			}
			for _, c := range table.Chains {
				if !reachable[c.Name] {
					continue
				}
				one := Chain{
					Place: p.ns.Name(), Backend: string(table.Backend), Family: table.Family, Table: table.Name,
					Name: c.Name, Hook: c.Hook, Priority: c.Priority, About: c.Comment, Rules: len(c.Rules), Met: met[of(c.Name)],
				}
				seen := map[string]bool{}
				for _, r := range c.Rules {
					for _, target := range table.Targets(r) {
						if !seen[target] && table.Chain(target) != nil {
							seen[target] = true
							one.Targets = append(one.Targets, target)
						}
					}
				}
				all = append(all, one)
			}
		}
	}
	return all
}
