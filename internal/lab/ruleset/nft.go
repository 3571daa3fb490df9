// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// parseNFT reads what "nft -a -y list" prints.
func parseNFT(text string) ([]*Table, error) {
	var p nftParser
	for line := range strings.Lines(text) {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("nft: line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return p.tables, nil
}

// nftParser holds the table, and the chain or set, that the next line belongs to.
type nftParser struct {
	tables []*Table
	table  *Table
	chain  *Chain
	set    *Set
	list   *elementList // that has begun and goes on in the next line, nil outside of one
}

// elementList is the beginning of a list of elements.
type elementList struct {
	text   strings.Builder
	depth  int  // the braces that are open
	inside bool // of quotes
}

// add adds a line. It reports whether the line ends with the brace that closes the list.
func (l *elementList) add(line string) (ended bool) {
	l.text.WriteString(" " + line)
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			l.inside = !l.inside
		case l.inside:
		case c == '{':
			l.depth++
		case c == '}':
			l.depth--
		}
	}
	return l.depth < 0
}

var (
	handleOf  = regexp.MustCompile(` # handle (\d+)(?: progname .*)?$`)
	counterOf = regexp.MustCompile(`counter packets (\d+) bytes (\d+)`)
	commentOf = regexp.MustCompile(`\bcomment "([^"]*)"`)
	hookOf    = regexp.MustCompile(`^type (\w+) hook (\w+) (?:devices? (?:= )?(.+?) )?priority ([^;]+);` +
		`(?: policy (\w+);)?`)
	jumpOf     = regexp.MustCompile(`\b(?:jump|goto) ([\w./-]+)`)
	setOf      = regexp.MustCompile(`@([\w./-]+)`)
	expiryOf   = regexp.MustCompile(` expires \w+`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
	unreadable = regexp.MustCompile(`(?m)^# Table .(\w+)' is incompatible`)
)

func (p *nftParser) line(line string) error {
	var handle uint64
	if m := handleOf.FindStringSubmatchIndex(line); m != nil {
		handle, _ = strconv.ParseUint(line[m[2]:m[3]], 10, 64) // digits
		line = line[:m[0]]
	}
	if p.list != nil {
		return p.element(line)
	}
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(line, "#"):
	case line == "}":
		p.end()
	case p.table == nil:
		if len(words) != 4 || words[0] != "table" {
			return fmt.Errorf("want a table")
		}
		p.table = &Table{Backend: NFTables, Family: words[1], Name: words[2]}
		p.tables = append(p.tables, p.table)
	case p.chain != nil:
		return p.inChain(line, handle)
	case p.set != nil:
		return p.inSet(line)
	case strings.HasSuffix(line, " {"):
		p.begin(words)
	case strings.HasPrefix(line, "comment "): // there are also the flags of the table
		p.table.Comment = comment(line)
	}
	return nil
}

// begin begins a chain or a set.
func (p *nftParser) begin(words []string) {
	name := words[len(words)-2]
	if words[0] == "chain" {
		p.chain = &Chain{Name: name}
		p.table.Chains = append(p.table.Chains, p.chain)
		return
	}
	p.set = &Set{Kind: strings.Join(words[:len(words)-2], " "), Name: name}
	p.table.Sets = append(p.table.Sets, p.set)
}

func (p *nftParser) end() {
	switch {
	case p.chain != nil:
		p.chain = nil
	case p.set != nil:
		p.set = nil
	default:
		p.table = nil
	}
}

func (p *nftParser) inChain(line string, handle uint64) error {
	c := p.chain
	if m := hookOf.FindStringSubmatch(line); m != nil && handle == 0 {
		priority, err := strconv.Atoi(m[4])
		c.Type, c.Hook, c.Device, c.Priority, c.Policy = m[1], m[2], strings.Trim(m[3], `"`), priority, m[5]
		return err
	}
	if strings.HasPrefix(line, "comment ") && handle == 0 {
		c.Comment = comment(line)
		return nil
	}
	r := &Rule{Text: line, Handle: handle}
	r.Text, r.Counters = takeCounters(line, "counter")
	plain := quoted.ReplaceAllString(r.Text, "")
	r.Jumps, r.Sets = allOf(jumpOf, plain), allOf(setOf, plain)
	c.Rules = append(c.Rules, r)
	return nil
}

func (p *nftParser) inSet(line string) error {
	if list, ok := strings.CutPrefix(line, "elements = {"); ok {
		return p.element(list)
	}
	if c := comment(line); c != "" {
		p.set.Comment = c
	} else {
		p.set.Properties = append(p.set.Properties, line)
	}
	return nil
}

// element reads a line of elements. A list has thousands of lines if a map has a Service in each.
func (p *nftParser) element(line string) error {
	if p.list == nil {
		p.list = &elementList{}
	}
	if !p.list.add(line) {
		return nil
	}
	all := strings.TrimSuffix(p.list.text.String(), "}")
	p.list = nil
	for _, text := range split(all) {
		e := Element{}
		e.Text, e.Counters = takeCounters(expiryOf.ReplaceAllString(text, ""), "")
		if jumps := allOf(jumpOf, quoted.ReplaceAllString(e.Text, "")); len(jumps) > 0 {
			e.Jump = jumps[0]
		}
		p.set.Elements = append(p.set.Elements, e)
	}
	return nil
}

// takeCounters replaces the first counter in a text.
func takeCounters(text, by string) (string, *Counters) {
	m := counterOf.FindStringSubmatchIndex(text)
	if m == nil {
		return text, nil
	}
	var c Counters
	c.Packets, _ = strconv.ParseUint(text[m[2]:m[3]], 10, 64) // digits
	c.Bytes, _ = strconv.ParseUint(text[m[4]:m[5]], 10, 64)
	text = text[:m[0]] + by + text[m[1]:]
	return strings.TrimSpace(strings.ReplaceAll(text, "  ", " ")), &c
}

// comment returns the comment in a line.
func comment(line string) string {
	if m := commentOf.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

// allOf returns the first group of each match, without repetitions.
func allOf(pattern *regexp.Regexp, text string) (found []string) {
	seen := map[string]bool{}
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			found = append(found, m[1])
		}
	}
	return found
}

// split splits a list at commas outside of quotes and braces.
func split(list string) (parts []string) {
	start, depth, inside := 0, 0, false
	for i, c := range list {
		switch {
		case c == '"':
			inside = !inside
		case inside:
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" {
		parts = append(parts, last)
	}
	return parts
}
