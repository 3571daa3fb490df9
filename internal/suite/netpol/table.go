// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Cells is how many cells a table has: from every pod of the grid to every pod, on every port.
const Cells = 9 * 9 * 4

// Cell is one probe of a table.
type Cell struct{ From, To, Port int } // numbers in Pods, Pods and Ports

// CellAt is the i-th cell: the tables' order is by sender, then target, then port.
func CellAt(i int) Cell { return Cell{i / 36, i / 4 % 9, i % 4} }

// Index is the number of the cell.
func (c Cell) Index() int { return c.From*36 + c.To*4 + c.Port }

// Self says that the cell is between a pod and itself, which no policy is asked about.
func (c Cell) Self() bool { return c.From == c.To }

// String is "x/a>y/b:80/TCP".
func (c Cell) String() string {
	return fmt.Sprintf("%s>%s:%s", Pods[c.From], Pods[c.To], Ports[c.Port])
}

// Table says of each cell whether it is blocked.
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
// namespace, or all ports. A pod's cells with itself are never among them.
func (t *Table) block(line string) error {
	from, rest, ok := strings.Cut(line, ">")
	to, ports, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return fmt.Errorf("%q: want SENDERS > TARGETS: PORTS, for example %q", line, "x/b,y/* > x/a: 80/TCP")
	}
	senders, err := podsNamed(from)
	if err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	targets, err := podsNamed(to)
	if err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	numbers, err := portsNamed(ports)
	if err != nil {
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

// podsNamed are the numbers of the pods that a list names.
func podsNamed(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		found := false
		for i, pod := range Pods {
			if namespace, all := strings.CutSuffix(word, "*"); word == pod || all && strings.HasPrefix(pod, namespace) {
				out, found = append(out, i), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no pod %q in the grid: there are %s, %s/* and *", word, strings.Join(Pods, ", "),
				strings.Join(Namespaces, "/*, "))
		}
	}
	return out, nil
}

// portsNamed are the numbers of the ports that a list names.
func portsNamed(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		found := false
		for i, port := range Ports {
			if word == "*" || word == port.String() {
				out, found = append(out, i), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no port %q in the grid: there are %v and *", word, Ports)
		}
	}
	return out, nil
}

// parsePort reads a port's number and protocol as case files write them.
func parsePort(number int32, protocol string) (Port, error) {
	p := Port{number, corev1.Protocol(protocol)}
	if !slices.Contains(Ports, p) {
		return p, fmt.Errorf("no port %s in the grid: there are %v", strconv.Quote(p.String()), Ports)
	}
	return p, nil
}
