// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
)

// hooks are the hooks of the built-in chains of iptables.
var hooks = map[string]string{
	"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting",
}

// priority returns the priority of a built-in chain (enum nf_ip_hook_priorities of linux/netfilter_ipv4.h, the same for
// IPv6) and its type.
func priority(table, hook string) (int, string) {
	switch table {
	case "raw":
		return -300, "filter"
	case "mangle":
		if hook == "output" {
			return -150, "route"
		}
		return -150, "filter"
	case "nat":
		if hook == "prerouting" || hook == "output" {
			return -100, "nat"
		}
		return 100, "nat"
	case "security":
		return 50, "filter"
	}
	return 0, "filter"
}

// parseSaved reads what a save program of iptables prints. iptables-nft-save also prints built-in chains that the
// kernel does not have: exists reports those that it has.
func parseSaved(b Backend, family, text string, exists func(table, chain string) bool) ([]*Table, error) {
	var tables []*Table
	byName := map[string]*Table{}
	chains := map[[2]string]*Chain{}
	for line, err := range iptablessave.Lines(text) {
		if err != nil {
			return nil, err
		}
		t := byName[line.Table]
		if t == nil {
			t = &Table{Backend: b, Family: family, Name: line.Table}
			byName[line.Table], tables = t, append(tables, t)
		}
		at := [2]string{line.Table, line.Chain}
		switch {
		case line.Rule != "":
			if c := chains[at]; c != nil {
				c.Rules = append(c.Rules, savedRule(line))
			}
		case exists(line.Table, line.Chain):
			c := savedChain(line)
			chains[at], t.Chains = c, append(t.Chains, c)
		}
	}
	for _, t := range tables {
		resolve(t, func(name string) bool { return chains[[2]string{t.Name, name}] != nil })
	}
	return tables, nil
}

func savedChain(line iptablessave.Line) *Chain {
	c := &Chain{Name: line.Chain, Hook: hooks[line.Chain]}
	if c.Hook != "" {
		c.Priority, c.Type = priority(line.Table, c.Hook)
		c.Policy = line.Policy
		c.Counters = &Counters{uint64(line.Packets), uint64(line.Bytes)}
	}
	return c
}

func savedRule(line iptablessave.Line) *Rule {
	return &Rule{
		Text:     "-A " + line.Chain + " " + string(line.Rule),
		Counters: &Counters{uint64(line.Packets), uint64(line.Bytes)},
	}
}

// resolve finds the chains and sets that rules lead to. A target that is no chain is an extension.
func resolve(t *Table, isChain func(name string) bool) {
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			rule := iptablessave.Rule(r.Text)
			if target := rule.Target(); isChain(target) {
				r.Jumps = []string{target}
			}
			words := strings.Fields(r.Text)
			for i, w := range words[:len(words)-1] {
				if w == "--match-set" {
					r.Sets = append(r.Sets, words[i+1])
				}
			}
		}
	}
}

// parseIPSets reads what "ipset save" prints.
func parseIPSets(text string) []*Set {
	var sets []*Set
	byName := map[string]*Set{}
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(words) < 3 {
			continue
		}
		switch name := words[1]; words[0] {
		case "create":
			s := &Set{Kind: "ipset", Name: name, Properties: []string{words[2]}}
			byName[name], sets = s, append(sets, s)
		case "add":
			if s := byName[name]; s != nil {
				s.Elements = append(s.Elements, Element{Text: words[2]})
			}
		}
	}
	return sets
}
