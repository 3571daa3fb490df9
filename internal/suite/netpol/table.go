// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cells is the number of cells of a table: from every pod of the grid to every pod, on every port.
const Cells = 9 * 9 * 4

// Cell is one probe of a table.
type Cell struct{ From, To, Port int } // indexes into Pods, Pods and Ports

// CellAt returns the i-th cell. Cells are in the order of sender, target, port.
func CellAt(i int) Cell { return Cell{i / 36, i / 4 % 9, i % 4} }

// Index returns the number of the cell.
func (c Cell) Index() int { return c.From*36 + c.To*4 + c.Port }

// Self reports whether the cell is between a pod and itself. Policies do not apply to it.
func (c Cell) Self() bool { return c.From == c.To }

// String returns "x/a>y/b:80/TCP", for example.
func (c Cell) String() string {
	return fmt.Sprintf("%s>%s:%s", Pods[c.From], Pods[c.To], Ports[c.Port])
}

// Table reports for each cell whether it is blocked.
type Table [Cells]bool

// Blocked counts the cells that are blocked.
func (t *Table) Blocked() int {
	n := 0
	for _, blocked := range t {
		if blocked {
			n++
		}
	}
	return n
}

// block adds the cells that a line names: "x/b,y/* > x/a: 80/TCP,81/UDP". A star stands for all pods, all of a
// namespace, or all ports. It leaves out the cells between a pod and itself.
func (t *Table) block(line string) error {
	from, rest, ok := strings.Cut(line, ">")
	to, ports, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return fmt.Errorf("%q: want SENDERS > TARGETS: PORTS, for example %q", line, "x/b,y/* > x/a: 80/TCP")
	}
	senders, errFrom := podsNamed(from)
	targets, errTo := podsNamed(to)
	numbers, errPorts := portsNamed(ports)
	if err := cmp.Or(errFrom, errTo, errPorts); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if len(senders) == 1 && slices.Equal(senders, targets) {
		return fmt.Errorf("%q: a pod always reaches itself", line)
	}
	for _, s := range senders {
		for _, d := range targets {
			for _, p := range numbers {
				if c := (Cell{s, d, p}); !c.Self() {
					t[c.Index()] = true
				}
			}
		}
	}
	return nil
}

// lines returns lines that block reads as this table, one for each sender and target.
func (t *Table) lines() []string {
	out := []string{}
	for pair := range Cells / len(Ports) {
		var ports []string
		for i, p := range Ports {
			if t[pair*len(Ports)+i] {
				ports = append(ports, p.String())
			}
		}
		if len(ports) > 0 {
			c := CellAt(pair * len(Ports))
			out = append(out, fmt.Sprintf("%s > %s: %s", Pods[c.From], Pods[c.To], strings.Join(ports, ",")))
		}
	}
	return out
}

// podsNamed returns the numbers of the pods that a list names.
func podsNamed(list string) ([]int, error) {
	known := fmt.Sprintf("%s, %s/* and *", strings.Join(Pods, ", "), strings.Join(Namespaces, "/*, "))
	return numbersOf(list, "pod", known, len(Pods),
		func(word string, i int) bool {
			prefix, all := strings.CutSuffix(word, "*")
			return word == Pods[i] || all && strings.HasPrefix(Pods[i], prefix)
		})
}

// portsNamed returns the numbers of the ports that a list names.
func portsNamed(list string) ([]int, error) {
	return numbersOf(list, "port", fmt.Sprintf("%v and *", Ports), len(Ports),
		func(word string, i int) bool { return word == "*" || word == Ports[i].String() })
}

// numbersOf returns, of 0 to n-1, those that match a word of the list. A word that matches none is an error.
func numbersOf(list, kind, known string, n int, matches func(word string, i int) bool) (out []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		before := len(out)
		for i := range n {
			if matches(word, i) {
				out = append(out, i)
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("no %s %q in the grid: there are %s", kind, word, known)
		}
	}
	return out, nil
}
