// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tree is a chain, or what a rule does at last, with what its rules lead to.
type tree struct {
	name     string
	children []*tree
}

// child returns the child of a name, and adds one if there is none: before the first that comes later, or as the last.
func (t *tree) child(name string, later func(*tree) bool) *tree {
	if i := slices.IndexFunc(t.children, func(c *tree) bool { return c.name == name }); i >= 0 {
		return t.children[i]
	}
	at := slices.IndexFunc(t.children, later)
	if at < 0 {
		at = len(t.children)
	}
	t.children = slices.Insert(t.children, at, &tree{name: name})
	return t.children[at]
}

// asks stands between what a rule does and its condition.
const asks = "   if "

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
		at := map[string]*tree{}      // the chains of this walk
		passed := map[*tree][]*tree{} // the rules of a chain that it has met since it came there
		for _, line := range walk {
			m := met.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			hook, chain, rule, verdict := fmt.Sprintf("%s %s, table %s", strings.ToUpper(m[1]), m[2], m[3]), m[4], m[5], m[6]
			here := at[hook+chain]
			if here == nil {
				here = root.child(hook, func(*tree) bool { return false })
			}
			name := target.FindStringSubmatch(rule)
			if name == nil {
				continue
			}
			label := name[1]
			if only := strings.TrimSpace(unasked.ReplaceAllString(target.ReplaceAllString(rule, ""), "")); only != "" {
				label += asks + only
			}
			// A rule without a condition that this packet has not met comes later: otherwise it would have met it.
			next := here.child(label, func(c *tree) bool {
				return !strings.Contains(c.name, asks) && !slices.Contains(passed[here], c)
			})
			passed[here] = append(passed[here], next)
			if verdict == "jump" || verdict == "goto" {
				at[hook+name[1]], passed[next] = next, nil
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
