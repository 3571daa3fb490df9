package xtables

import (
	"bufio"
	"bytes"
	"strings"
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
		if r.goesTo(target) {
			out = append(out, r)
		}
	}
	return out
}

func (r Rule) goesTo(target string) bool {
	text := string(r) + " "
	return strings.Contains(text, "-j "+target+" ") || strings.Contains(text, "-g "+target+" ")
}

// parseSaved reads the output of iptables-save for one table. A table that does not exist is empty.
func parseSaved(out []byte) *Saved {
	s := &Saved{Chains: map[string][]Rule{}}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			s.Chains[name] = nil
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			s.Chains[chain] = append(s.Chains[chain], Rule(rule))
		}
	}
	return s
}
