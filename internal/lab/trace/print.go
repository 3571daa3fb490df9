// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// columns are the fields of a tuple, in the order in which a line shows them.
var columns = []string{"sourceIP", "sourcePort", "destinationIP", "destinationPort", "mark", "state"}

// fields returns the texts of the columns.
func (t Tuple) fields() []string {
	return []string{
		t.Src.Addr().String(), port(t.Src), t.Dst.Addr().String(), port(t.Dst), fmt.Sprintf("%#x", t.Mark),
		cmp.Or(t.State, "-"),
	}
}

// port returns "-" for packets without ports.
func port(a netip.AddrPort) string {
	if a.Port() == 0 {
		return "-"
	}
	return fmt.Sprint(a.Port())
}

// Style is how a trace is printed as text. The zero value is in full, and without colour.
type Style struct {
	// Brief leaves out the devices, and the rules that neither change nor end the packet.
	Brief bool
	// Colour marks places, changes and ends for terminals (ECMA-48 8.3.117).
	Colour bool
}

// The parameters of colours.
const (
	bold, dim, red, yellow = "1", "2", "31", "1;33"
)

func (s Style) paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Print writes a walk: a line for each step, and after each change the packet as a line of a table, with * before what
// has changed.
func (w *Walk) Print(out io.Writer) error { return w.print(out, Style{}) }

func (w *Walk) print(out io.Writer, style Style) error {
	p := bufio.NewWriter(out)
	widths := w.widths()
	style.row(p, widths, columns, nil)
	style.row(p, widths, w.First.fields(), nil)
	if q := w.First.Quoted; q != nil {
		fmt.Fprintf(p, "      it quotes %s -> %s\n", q.Src, q.Dst)
	}
	place := ""
	for i, s := range w.Steps {
		if s.Place != place {
			fmt.Fprintf(p, "\n%s\n", style.paint(bold, s.Place))
			place = s.Place
		}
		if style.Brief && s.After == nil && s.Verdict != "drop" {
			continue
		}
		w.printStep(p, style, widths, i)
	}
	return p.Flush()
}

func (w *Walk) printStep(p io.Writer, style Style, widths []int, i int) {
	s, line := w.Steps[i], w.Steps[i].String()
	if s.Verdict == "drop" {
		line = style.paint(red, line)
	}
	fmt.Fprintf(p, "  %s\n", line)
	if s.About != "" {
		fmt.Fprintf(p, "      %s\n", style.paint(dim, "# "+s.About))
	}
	if s.Flow != "" {
		fmt.Fprintf(p, "      %s\n", style.paint(dim, "# "+s.Flow))
	}
	if e := w.End; e != nil && e.Step == i && e.Why != "" && s.Verdict == "drop" {
		fmt.Fprintf(p, "      %s\n", style.paint(red, "# "+e.Why))
	}
	if s.After == nil {
		return
	}
	style.row(p, widths, s.After.fields(), s.Changed)
	if q := s.After.Quoted; q != nil && (s.Before.Quoted == nil || *q != *s.Before.Quoted) {
		fmt.Fprintf(p, "      it quotes %s\n", style.paint(yellow, fmt.Sprintf("*%s -> %s", q.Src, q.Dst)))
	}
}

// String returns a line without the annotation.
func (s Step) String() string {
	switch {
	case s.Device != "":
		return fmt.Sprintf("device %s %s: %s", s.Device, s.Direction, s.Packet)
	case s.Kernel != "" && s.Hook == "":
		return s.Kernel
	case s.Kernel != "":
		return fmt.Sprintf("%s [%d] %s", s.Hook, s.Priority, s.Kernel)
	}
	rule := s.Rule
	if rule == "" {
		rule = "policy of chain " + s.Chain
	}
	at := fmt.Sprintf("%s [%d] %s %s %s", s.Hook, s.Priority, s.Backend, s.Family, s.Table)
	if s.Backend == "nftables" || s.Rule == "" {
		at += " " + s.Chain
	}
	return fmt.Sprintf("%s: %s => %s", at, rule, s.Verdict)
}

// widths returns the widths of the columns, with room for a star.
func (w *Walk) widths() []int {
	rows := [][]string{columns, w.First.fields()}
	for _, s := range w.Steps {
		if s.After != nil {
			rows = append(rows, s.After.fields())
		}
	}
	widths := make([]int, len(columns))
	for _, r := range rows {
		for i, text := range r {
			widths[i] = max(widths[i], len(text)+1)
		}
	}
	return widths
}

func (s Style) row(p io.Writer, widths []int, texts, changed []string) {
	var b strings.Builder
	for i, text := range texts {
		cell, colour := " "+text, ""
		if slices.Contains(changed, columns[i]) {
			cell, colour = "*"+text, yellow
		}
		cell = fmt.Sprintf("%-*s", widths[i], cell)
		if colour != "" {
			cell = s.paint(colour, cell)
		}
		b.WriteString("|" + cell + " ")
	}
	fmt.Fprintf(p, "      %s|\n", b.String())
}
