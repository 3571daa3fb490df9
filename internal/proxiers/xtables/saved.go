// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bufio"
	"bytes"
	"slices"
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
		if r.Target() == target {
			out = append(out, r)
		}
	}
	return out
}

// Target is where the rule sends a packet, empty if it sends it nowhere.
func (r Rule) Target() string {
	words := r.words()
	for i, w := range words {
		if (w == "-j" || w == "-g") && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// Option is the word that follows an option, without its quotes; empty if the rule has no such option.
func (r Rule) Option(name string) string {
	words := r.words()
	i := slices.Index(words, name)
	if i < 0 || i+1 == len(words) {
		return ""
	}
	word := words[i+1]
	if len(word) > 1 && word[0] == '"' {
		word = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(word[1 : len(word)-1])
	}
	return word
}

// words splits the rule at blanks outside of double quotes. Quoted words keep their quotes, so a comment is never taken
// for an option.
func (r Rule) words() []string {
	var words []string
	start, quoted := 0, false
	for i := range len(r) {
		switch {
		case r[i] == '"' && (i == 0 || r[i-1] != '\\'):
			quoted = !quoted
		case r[i] == ' ' && !quoted:
			words = append(words, string(r[start:i]))
			start = i + 1
		}
	}
	return append(words, string(r[start:]))
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

// parseAllSaved reads the output of iptables-save for several tables. Each begins with a line of "*" and its name.
func parseAllSaved(out []byte) Tables {
	all := Tables{}
	for _, part := range bytes.Split(append([]byte("\n"), out...), []byte("\n*"))[1:] {
		name, _, _ := bytes.Cut(part, []byte("\n"))
		all[TableName(name)] = parseSaved(part)
	}
	return all
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
