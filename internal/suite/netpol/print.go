// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTable writes a mark for every cell: a line for each sender, a column for each target, and in it a mark for each
// port in the order of Ports.
func WriteTable(w io.Writer, mark func(cell int) byte) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s", "")
	for _, to := range Pods {
		fmt.Fprintf(&b, " %-4s", to)
	}
	for from, name := range Pods {
		fmt.Fprintf(&b, "\n%-5s", name)
		for to := range Pods {
			b.WriteByte(' ')
			for port := range Ports {
				b.WriteByte(mark(Cell{from, to, port}.Index()))
			}
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarks writes the mark of every cell.
func (v *Verdict) WriteMarks(w io.Writer) error {
	return WriteTable(w, func(cell int) byte { return byte(v.Marks[cell]) })
}

// WriteDifferences writes the marks of the wrong cells, and a dash for all others.
func (v *Verdict) WriteDifferences(w io.Writer) error {
	return WriteTable(w, func(cell int) byte {
		if slices.Contains(v.Wrong, cell) {
			return byte(v.Marks[cell])
		}
		return '-'
	})
}
