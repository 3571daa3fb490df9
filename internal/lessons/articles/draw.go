// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"fmt"
	"regexp"
	"strings"
)

// tree is a chain, or what a rule does at last, with what its rules lead to.
type tree struct {
	name     string
	children []*tree
}

// child returns the child of a name, which it adds if there is none.
func (t *tree) child(name string) *tree {
	for _, c := range t.children {
		if c.name == name {
			return c
		}
	}
	c := &tree{name: name}
	t.children = append(t.children, c)
	return c
}

var (
	// met is a line of "viplab trace" about a rule of iptables: hook, priority, table, chain, the rule and the verdict.
	met     = regexp.MustCompile(`^(\w+) (\[-?\d+\]) \S+ ip (\w+): -A (\S+) (.*) => (\w+)`)
	target  = regexp.MustCompile(` ?-[jg] (\S+(?: --(?:set-xmark|to-destination) \S+)?).*$`)
	unasked = regexp.MustCompile(`-m comment --comment "[^"]*" ?|-m (tcp|addrtype|conntrack|mark|statistic) ?`)
)

// draw draws the chains that the packets of walks pass, as a tree for each hook.
func draw(walks [][]string) string {
	root := &tree{}
	for _, walk := range walks {
		at := map[string]*tree{} // the chains of this walk
		for _, line := range walk {
			m := met.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			hook, chain, rule, verdict := fmt.Sprintf("%s %s, table %s", strings.ToUpper(m[1]), m[2], m[3]), m[4], m[5], m[6]
			here := at[hook+chain]
			if here == nil {
				here = root.child(hook)
			}
			name := target.FindStringSubmatch(rule)
			if name == nil {
				continue
			}
			label := name[1]
			if asks := strings.TrimSpace(unasked.ReplaceAllString(target.ReplaceAllString(rule, ""), "")); asks != "" {
				label += "   if " + asks
			}
			next := here.child(label)
			if verdict == "jump" || verdict == "goto" {
				at[hook+name[1]] = next
			}
		}
	}
	var b strings.Builder
	for _, hook := range root.children {
		hook.write(&b, "", "")
	}
	return b.String()
}

// write writes a tree. first and rest are what stands before its first line and before the others.
func (t *tree) write(b *strings.Builder, first, rest string) {
	fmt.Fprintf(b, "%s%s\n", first, t.name)
	for i, c := range t.children {
		if i < len(t.children)-1 {
			c.write(b, rest+"├─ ", rest+"│  ")
		} else {
			c.write(b, rest+"└─ ", rest+"   ")
		}
	}
}

// drawing returns the drawing of an exhibit.
func (e *Exhibit) drawing(l library) (string, error) {
	var walks [][]string
	for _, at := range e.Draw {
		lesson, step, _ := strings.Cut(at, "/")
		lines, err := l.lines([]Source{{Lesson: lesson, Step: step}})
		if err != nil {
			return "", err
		}
		walks = append(walks, lines)
	}
	text := draw(walks)
	if len(e.Draw) > 0 && text == "" {
		return "", fmt.Errorf("%v have no rules to draw", e.Draw)
	}
	return text, nil
}
