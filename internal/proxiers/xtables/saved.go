// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
)

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

// Tables holds the contents of all tables that exist.
type Tables map[TableName]*Saved

// Of returns the contents of a table, empty if it does not exist.
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

// Annotate adds comments to the output of iptables-save: above the rules of each chain what the chain is for, and above
// each rule what the rule is for. An empty text adds nothing.
func Annotate(saved []byte, chain func(name string) string, rule func(Rule) string) []byte {
	var out bytes.Buffer
	last := ""
	for line := range bytes.Lines(saved) {
		if rest, ok := bytes.CutPrefix(line, []byte("-A ")); ok {
			name, r, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
			if why := chain(name); why != "" && name != last {
				out.WriteString("\n# " + name + ": " + why + "\n")
			}
			last = name
			if why := rule(Rule(r)); why != "" {
				out.WriteString("# " + why + "\n")
			}
		}
		out.Write(line)
	}
	return out.Bytes()
}
