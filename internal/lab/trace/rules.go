// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/observe"
)

// table returns a table of nftables, those of iptables-nft among them.
func (p *spot) table(family, name string) *ruleset.Table {
	for _, t := range p.rules.Tables {
		if t.Backend != ruleset.IptablesLegacy && t.Family == family && t.Name == name {
			return t
		}
	}
	return nil
}

// step returns what a message says of a rule, or of a policy that drops. It returns nil for others.
func (p *spot) step(m *message, at ruleset.Chain) *Step {
	s := &Step{
		Place: p.ns.Name(), Hook: at.Hook, Priority: at.Priority, Family: families[m.family], Table: m.table,
		Chain: m.chain, Verdict: verdicts[m.verdict],
	}
	if m.jump != "" {
		s.Verdict += " " + m.jump
	}
	t := p.table(s.Family, m.table)
	if t != nil {
		s.Backend = string(t.Backend)
	}
	switch {
	case m.kind == kindPolicy && m.policy == 0:
		s.Verdict = "drop"
		return s
	case m.kind != kindRule || m.handle == 0: // the end of a chain
		return nil
	}
	s.Rule = fmt.Sprintf("rule with handle %d, made after the trace began", m.handle)
	if t == nil {
		return s
	}
	if c := t.Chain(m.chain); c != nil {
		for _, r := range c.Rules {
			if r.Handle == m.handle {
				s.Rule, s.About = r.Text, r.About
			}
		}
	}
	return s
}

// legacyStep returns the rule that a line of the log names, and sets the priority of its table.
func (p *spot) legacyStep(e *event, packet *observe.Packet, words []string) *Step {
	family := ruleset.IP
	if packet.Src.Addr().Is6() {
		family = ruleset.IP6
	}
	s := &Step{
		Place: p.ns.Name(), Hook: e.hook, Backend: string(ruleset.IptablesLegacy), Family: family, Table: words[0],
		Chain: words[1],
	}
	i := slices.IndexFunc(p.rules.Tables, func(t *ruleset.Table) bool {
		return t.Backend == ruleset.IptablesLegacy && t.Family == family && t.Name == words[0]
	})
	if i < 0 {
		return nil
	}
	t := p.rules.Tables[i]
	for _, c := range t.Chains {
		if c.Hook == e.hook {
			e.priority, s.Priority = c.Priority, c.Priority
		}
	}
	c := t.Chain(words[1])
	if c == nil {
		return nil
	}
	n, _ := strconv.Atoi(words[3]) // the kernel prints a number
	switch {
	case words[2] == "policy" && c.Policy == "DROP":
		s.Verdict = "drop"
		return s
	case words[2] != "rule" || n < 1 || n > len(c.Rules):
		return nil
	}
	r := c.Rules[n-1]
	s.Rule, s.About = r.Text, r.About
	s.Verdict = strings.ToLower(iptablessave.Rule(r.Text).Target())
	if len(r.Jumps) > 0 {
		s.Verdict = "jump " + r.Jumps[0]
	}
	if s.Verdict == "reject" {
		s.Verdict = "drop"
	}
	return s
}
