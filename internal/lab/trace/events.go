// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/observe"
)

// event is a point of a packet's way through a node's rules.
type event struct {
	hook     string
	priority int
	step     *Step // nil for a point that is only looked at, such as a probe
	// src and dst are the addresses before the step. They are not valid if the event does not tell.
	src, dst netip.AddrPort
	state    string
	mark     uint32
	after    bool // the mark is that after the step, not before
}

// events returns what the rules of a node did to a packet, in order.
func (p *spot) events(k key) []event {
	var all []event
	mine := map[uint32]bool{}
	seen := map[probe]bool{} // what sets the trace bit meets a packet once; a retransmission meets it again
	var at ruleset.Chain
	for _, m := range p.messages {
		if m.network != nil {
			mine[m.id] = k.header(m.network, m.transport)
			hook, isProbe := p.place(m)
			if start := (probe{families[m.family], hook.Hook, hook.Priority}); mine[m.id] && isProbe && start.priority == first {
				if seen[start] {
					break
				}
				seen[start] = true
			}
			if mine[m.id] {
				at = hook
			}
		}
		if !mine[m.id] {
			continue
		}
		e := event{hook: at.Hook, priority: at.Priority, mark: m.mark, after: true, step: p.step(m, at)}
		if m.network != nil {
			if packet, err := observe.DecodeIP(append(bytes.Clone(m.network), m.transport...)); err == nil {
				e.src, e.dst, e.state = packet.Src, packet.Dst, stateOf(m.state, m.status)
			}
		}
		all = append(all, e)
	}
	return merge(all, p.legacyEvents(k))
}

// place returns the base chain that a message with headers is about, with its hook, and reports whether it is a probe.
func (p *spot) place(m message) (c ruleset.Chain, isProbe bool) {
	if m.table == tableName {
		for one := range p.probes {
			if one.family == families[m.family] && one.chain() == m.chain {
				return ruleset.Chain{Hook: one.hook, Priority: one.priority}, true
			}
		}
	}
	if t := p.table(families[m.family], m.table); t != nil {
		if c := t.Chain(m.chain); c != nil {
			return ruleset.Chain{Hook: c.Hook, Priority: c.Priority}, false
		}
	}
	return c, false
}

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
func (p *spot) step(m message, at ruleset.Chain) *Step {
	if m.table == tableName {
		return nil
	}
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

// hookNames are the hooks by number (enum nf_inet_hooks).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting"}

// legacyEvents returns what rules of legacy tables did to a packet.
func (p *spot) legacyEvents(k key) []event {
	var all []event
	seen := map[string]bool{} // by prefix and hook: a retransmission repeats them
	for _, l := range p.logged {
		packet, err := observe.DecodeIP(l.Packet)
		prefix, ok := strings.CutPrefix(strings.TrimSpace(l.Prefix), "TRACE: ")
		words := strings.Split(prefix, ":") // table, chain, kind, number
		if err != nil || !ok || !k.is(packet) || len(words) != 4 || int(l.Hook) >= len(hookNames) {
			continue
		}
		again := fmt.Sprint(prefix, l.Hook)
		if seen[again] {
			continue
		}
		seen[again] = true
		e := event{hook: hookNames[l.Hook], src: packet.Src, dst: packet.Dst, mark: l.Mark}
		e.step = p.legacyStep(&e, packet, words)
		all = append(all, e)
	}
	return all
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

// merge puts the events of legacy tables between those of nftables, by hook and priority. Both lists are in order.
func merge(all, legacy []event) []event {
	from := 0
	for _, e := range legacy {
		at, inside := len(all), false
		for i := from; i < len(all); i++ {
			same := all[i].hook == e.hook
			if same && all[i].priority > e.priority || !same && inside {
				at = i
				break
			}
			inside = inside || same
		}
		all = slices.Insert(all, at, e)
		from = at + 1
	}
	return all
}
