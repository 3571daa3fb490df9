// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
)

// Saved is what a table holds, as iptables-save prints it.
type Saved struct {
	// Chains maps each chain to its rules in the kernel's own spelling, including chains without rules.
	Chains map[string][]Rule
}

// Jumps returns the chain's rules that go to a target.
func (s *Saved) Jumps(chain, target string) []Rule {
	return slices.DeleteFunc(slices.Clone(s.Chains[chain]), func(r Rule) bool { return r.Target() != target })
}

// Tables holds the contents of all tables that exist.
type Tables map[TableName]*Saved

// Of returns the contents of a table, empty if it does not exist.
func (t Tables) Of(name TableName) *Saved { return cmp.Or(t[name], &Saved{}) }

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

// Annotate adds comments to the output of iptables-save: the purposes of chains, by name, above their rules, and the
// reasons of rules above each. A missing or empty text adds nothing, and reason may be nil.
func Annotate(saved []byte, purposes map[string]string, reason func(Rule) string) []byte {
	var out bytes.Buffer
	last := ""
	for line := range bytes.Lines(saved) {
		if rest, ok := bytes.CutPrefix(line, []byte("-A ")); ok {
			name, r, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
			if why := purposes[name]; why != "" && name != last {
				out.WriteString("\n# " + name + ": " + why + "\n")
			}
			last = name
			if reason != nil && reason(Rule(r)) != "" {
				out.WriteString("# " + reason(Rule(r)) + "\n")
			}
		}
		out.Write(line)
	}
	return out.Bytes()
}
