// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// Diff writes what differs between two rulesets, chain by chain: "-" before what only the old one has, "+" before what
// only the new one has. With counted, it also writes the rules that both have and that have counted packets in between,
// with the difference. It reports whether anything differs.
func Diff(out io.Writer, old, now *Ruleset, counted bool) (found bool, err error) {
	d := &differ{Writer: bufio.NewWriter(out), counted: counted}
	before, after := old.sections(), now.sections()
	for _, name := range after.names {
		d.section(name, before.lines[name], after.lines[name])
	}
	for _, name := range before.names {
		if after.lines[name] == nil {
			d.section(name, before.lines[name], nil)
		}
	}
	return d.any, d.Flush()
}

// sections are lists of lines with counters: chains, sets and others.
type sections struct {
	names []string
	lines map[string][]counted
}

type counted struct {
	text string
	*Counters
}

func (s *sections) add(name string, lines []counted) {
	if lines == nil {
		lines = []counted{}
	}
	s.names = append(s.names, name)
	s.lines[name] = lines
}

// sections returns what Diff compares.
func (r *Ruleset) sections() *sections {
	all := &sections{lines: map[string][]counted{}}
	for _, t := range r.Tables {
		at := fmt.Sprintf("%s: table %s %s", t.Backend, t.Family, t.Name)
		for _, c := range t.Chains {
			lines := []counted{}
			for _, rule := range c.Rules {
				lines = append(lines, counted{rule.Text, rule.Counters})
			}
			if c.Hook != "" {
				lines = append(lines, counted{fmt.Sprintf("hook %s, priority %d, policy %s", c.Hook, c.Priority,
					strings.ToLower(c.Policy)), c.Counters})
			}
			all.add(at+", chain "+c.Name, lines)
		}
		for _, s := range t.Sets {
			all.add(fmt.Sprintf("%s, %s %s", at, s.Kind, s.Name), s.sorted())
		}
	}
	for _, s := range r.IPSets {
		all.add(fmt.Sprintf("%s %s", s.Kind, s.Name), s.sorted())
	}
	for _, s := range r.Servers {
		lines := []counted{}
		for _, real := range s.Real {
			lines = append(lines, counted{fmt.Sprintf("-> %s %s weight %d", real.At, real.Forward, real.Weight), nil})
		}
		all.add("virtual server "+s.String(), lines)
	}
	var sockets []counted
	for _, s := range r.Sockets {
		sockets = append(sockets, counted{s.String(), nil})
	}
	all.add("sockets", sockets)
	return all
}

// sorted returns the elements of a set by text: they have no order.
func (s *Set) sorted() []counted {
	lines := []counted{}
	for _, e := range s.Elements {
		lines = append(lines, counted{e.Text, e.Counters})
	}
	slices.SortFunc(lines, func(a, b counted) int { return strings.Compare(a.text, b.text) })
	return lines
}

type differ struct {
	*bufio.Writer
	counted bool
	any     bool
}

// section writes the differences of one section below its name. Nil means that the section is missing.
func (d *differ) section(name string, old, now []counted) {
	var lines []string
	if old == nil {
		lines = append(lines, "+ (new)")
	} else if now == nil {
		lines = append(lines, "- (gone)")
	}
	for _, op := range difflib.NewMatcherWithJunk(texts(old), texts(now), false, nil).GetOpCodes() {
		if op.Tag == 'e' {
			for i := range op.I2 - op.I1 {
				lines = append(lines, d.growth(old[op.I1+i], now[op.J1+i])...)
			}
			continue
		}
		for _, l := range old[op.I1:op.I2] {
			lines = append(lines, "- "+l.text)
		}
		for _, l := range now[op.J1:op.J2] {
			lines = append(lines, "+ "+l.text)
		}
	}
	if len(lines) == 0 {
		return
	}
	d.any = true
	fmt.Fprintf(d, "%s\n", name)
	for _, l := range lines {
		fmt.Fprintf(d, "  %s\n", l)
	}
}

// growth returns a line for a rule that has counted packets, if such lines are wanted.
func (d *differ) growth(old, now counted) []string {
	if !d.counted || old.Counters == nil || now.Counters == nil || *old.Counters == *now.Counters {
		return nil
	}
	return []string{fmt.Sprintf("%+d packets, %+d bytes: %s", int64(now.Packets)-int64(old.Packets),
		int64(now.Bytes)-int64(old.Bytes), now.text)}
}

func texts(lines []counted) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.text)
	}
	return all
}
