// SPDX-License-Identifier: Apache-2.0

// Package iptablessave reads what iptables-save prints.
package iptablessave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Read returns the output of save, which runs the save program. The program reads the names of IP sets after the rules
// that match them. If someone removes a rule and its set in between, the program fails, and Read runs save again, until
// ctx ends.
func Read[T string | []byte](ctx context.Context, save func() (T, error)) (T, error) {
	for {
		out, err := save()
		if err == nil || ctx.Err() != nil || !setGone.MatchString(err.Error()) {
			return out, err
		}
	}
}

// setGone matches the error about a set that was removed (get_set_byid in libxt_set.h of iptables).
var setGone = regexp.MustCompile(`Set with index \d+ in kernel doesn't exist`)

// IsTable reports whether iptables has a table of that name.
func IsTable(name string) bool {
	return slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, name)
}

// LegacyTables is the file of /proc/net that names the tables of iptables-legacy in a family, "ip" or "ip6".
func LegacyTables(family string) string { return family + "_tables_names" }

// Line is a chain or a rule of a table.
type Line struct {
	Table, Chain string
	// Rule is empty for the line that declares the chain.
	Rule Rule
	// Policy is that of a chain that the line declares, "-" if the chain can have none.
	Policy string
	// Packets and Bytes are how many the rule has matched, or the policy of the chain, if the output has counters.
	Packets, Bytes int
}

// Lines returns the chains and rules of the output. The error is about counters that cannot be read.
func Lines(text string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		table := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			l := Line{Table: table}
			var err error
			if name, ok := strings.CutPrefix(line, "*"); ok {
				table = name
				continue
			} else if declared, ok := strings.CutPrefix(line, ":"); ok {
				name, rest, _ := strings.Cut(declared, " ")
				policy, counters, _ := strings.Cut(rest, " ")
				l.Chain, l.Policy = name, policy
				l.Packets, l.Bytes, err = parseCounters(counters)
			} else if counters, rule, ok := strings.Cut(" "+line, " -A "); ok {
				chain, rest, _ := strings.Cut(rule, " ")
				l.Chain, l.Rule = chain, Rule(rest)
				l.Packets, l.Bytes, err = parseCounters(strings.TrimSpace(counters))
			} else {
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// parseCounters reads "[packets:bytes]".
func parseCounters(text string) (packets, bytes int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	p, b, _ := strings.Cut(strings.Trim(text, "[]"), ":")
	packets, packetsErr := strconv.Atoi(p)
	bytes, bytesErr := strconv.Atoi(b)
	if err := errors.Join(packetsErr, bytesErr); err != nil {
		return 0, 0, fmt.Errorf("counters %q: %w", text, err)
	}
	return packets, bytes, nil
}

// Rule is a rule without "-A CHAIN", in the kernel's own spelling.
type Rule string

// Target returns where the rule sends a packet, empty if it sends it nowhere.
func (r Rule) Target() string {
	words := r.words()
	for i, w := range words {
		if (w == "-j" || w == "-g") && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// Option returns the word that follows an option, without its quotes; empty if the rule has no such option.
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

// WithoutComment returns the rule without its comment.
func (r Rule) WithoutComment() Rule {
	words := r.words()
	if i := slices.Index(words, "--comment"); i > 1 && i+2 <= len(words) {
		words = slices.Delete(words, i-2, i+2) // with "-m comment"
	}
	return Rule(strings.Join(words, " "))
}

// words splits the rule at blanks outside of double quotes, and keeps the quotes, so a comment is never an option.
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
