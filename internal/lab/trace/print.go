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

// Print writes a walk: a line for each step, and after each change the packet as a line of a table, with * before what
// has changed.
func (w *Walk) Print(out io.Writer) error {
	p := bufio.NewWriter(out)
	widths := w.widths()
	row(p, widths, columns, nil)
	row(p, widths, w.First.fields(), nil)
	if q := w.First.Quoted; q != nil {
		fmt.Fprintf(p, "      it quotes %s -> %s\n", q.Src, q.Dst)
	}
	place := ""
	for i, s := range w.Steps {
		if s.Place != place {
			fmt.Fprintf(p, "\n%s\n", s.Place)
			place = s.Place
		}
		fmt.Fprintf(p, "  %s\n", s)
		if s.About != "" {
			fmt.Fprintf(p, "      # %s\n", s.About)
		}
		if e := w.End; e != nil && e.Step == i && e.Why != "" && s.Verdict == "drop" {
			fmt.Fprintf(p, "      # %s\n", e.Why)
		}
		if s.After == nil {
			continue
		}
		row(p, widths, s.After.fields(), s.Changed)
		if q := s.After.Quoted; q != nil && *q != *s.Before.Quoted {
			fmt.Fprintf(p, "      it quotes *%s -> %s\n", q.Src, q.Dst)
		}
	}
	return p.Flush()
}

// String returns a line without the annotation.
func (s Step) String() string {
	switch {
	case s.Device != "":
		return fmt.Sprintf("device %s %s: %s", s.Device, s.Direction, s.Packet)
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

func row(p *bufio.Writer, widths []int, texts, changed []string) {
	var b strings.Builder
	for i, text := range texts {
		star := " "
		if slices.Contains(changed, columns[i]) {
			star = "*"
		}
		fmt.Fprintf(&b, "|%-*s ", widths[i], star+text)
	}
	fmt.Fprintf(p, "      %s|\n", b.String())
}
