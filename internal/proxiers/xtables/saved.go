// SPDX-License-Identifier: Apache-2.0

package xtables

import "github.com/viplab/viplab/internal/lab/iptablessave"

// Saved is what a table holds, as iptables-save prints it.
type Saved struct {
	// Chains maps each chain to its rules in the kernel's own spelling. Chains without rules are there with none.
	Chains map[string][]Rule
}

// Jumps lists the chain's rules that go to a target.
func (s *Saved) Jumps(chain, target string) []Rule {
	var out []Rule
	for _, r := range s.Chains[chain] {
		if r.Target() == target {
			out = append(out, r)
		}
	}
	return out
}

// Tables is what all tables hold. One that does not exist is not there.
type Tables map[TableName]*Saved

// Of is what a table holds: nothing, if it does not exist.
func (t Tables) Of(name TableName) *Saved {
	if s := t[name]; s != nil {
		return s
	}
	return &Saved{}
}

// parseAllSaved reads the output of iptables-save for several tables.
func parseAllSaved(out []byte) (Tables, error) {
	all := Tables{}
	for line, err := range iptablessave.Lines(string(out)) {
		if err != nil {
			return nil, err
		}
		s := all[TableName(line.Table)]
		if s == nil {
			s = &Saved{Chains: map[string][]Rule{}}
			all[TableName(line.Table)] = s
		}
		if line.Rule == "" {
			s.Chains[line.Chain] = nil
		} else {
			s.Chains[line.Chain] = append(s.Chains[line.Chain], line.Rule)
		}
	}
	return all, nil
}
