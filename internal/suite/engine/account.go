// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/viplab/viplab/internal/noun"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// failedRows is the error for rows that did not hold.
type failedRows struct {
	probes []*probed
	facts  spec.Facts
}

// An account of a failure fits on a screen. It is a table of shownRows rows that is at most shownColumns wide, or
// shownBlocks blocks. The evidence of the failure has the whole.
const (
	shownRows    = 8
	shownColumns = 96 // on a screen of 100 columns, indented
	shownBlocks  = 3
)

// Error returns the account of the failure: rows that were probed together, with their wanted and actual results, and
// the trace of the first that failed.
func (f failedRows) Error() string {
	var b strings.Builder
	b.WriteString(f.title())
	writeLines(&b, f.lines(true))
	writeFirstTrace(&b, f.probes)
	return strings.TrimRight(b.String(), "\n")
}

// whole returns the account with all rows, each on a line, and all traces.
func (f failedRows) whole() string {
	var b strings.Builder
	b.WriteString(f.title())
	writeTable(&b, f.lines(false))
	printTraces(&b, f.probes)
	return strings.TrimRight(b.String(), "\n")
}

func (f failedRows) title() string {
	wrong := 0
	for _, p := range f.probes {
		if len(p.wrong) > 0 && !p.known {
			wrong++
		}
	}
	return fmt.Sprintf("%d of %d rows do not hold\n", wrong, len(f.probes))
}

const wrongMark = "✗"

// line is what an account says of a row, or of the same row in several families.
type line struct{ mark, probe, want, got string }

// lines returns a line for each row, or with fold one for a row whose families have the same result.
func (f failedRows) lines(fold bool) (lines []line) {
	for i, p := range f.probes {
		mark := "✓"
		switch {
		case p.known:
			mark = "k"
		case len(p.wrong) > 0:
			mark = wrongMark
		}
		l := line{mark, p.row.Probe(p.family), p.row.Wants(), p.got(f.facts)}
		if fold {
			l.got = p.describe(withoutWaits(p.seen), f.facts)
		}
		if fold && i > 0 && f.probes[i-1].label == p.label {
			before := f.probes[i-1]
			last := &lines[len(lines)-1]
			alike := last.mark == l.mark && last.want == l.want && last.got == l.got
			if alike && before.row.Probe(0) == p.row.Probe(0) {
				family := " " + before.family.String()
				last.probe = strings.Replace(last.probe, family, family+"+"+p.family.String(), 1)
				continue
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// withoutWaits returns the observations without how the silence of each was proved, so that equal ones look equal.
func withoutWaits(seen []spec.Observation) []spec.Observation {
	out := slices.Clone(seen)
	for i := range out {
		if out[i].Outcome == traffic.Silence {
			out[i].Detail = ""
		}
	}
	return out
}

// writeLines writes a table that fits on a screen: of all rows, or else of those that do not hold. If it is too wide or
// too long, it writes blocks.
func writeLines(b *strings.Builder, lines []line) {
	if len(lines) > shownRows {
		lines = slices.DeleteFunc(lines, func(l line) bool { return l.mark != wrongMark })
	}
	var table strings.Builder
	writeTable(&table, lines)
	wide := func(text string) bool { return utf8.RuneCountInString(text) > shownColumns }
	if len(lines) > shownRows || slices.ContainsFunc(strings.Split(table.String(), "\n"), wide) {
		writeBlocks(b, lines)
		return
	}
	b.WriteString(table.String())
}

func writeTable(b *strings.Builder, lines []line) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tprobe\twant\tgot")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.mark, l.probe, l.want, l.got)
	}
	t.Flush()
}

// writeBlocks writes a block for each result: rows with this result, what they want and what they got. It shows as many
// of them as have room on a screen, first those that do not hold.
func writeBlocks(b *strings.Builder, lines []line) {
	blocks := map[line][]string{} // probes by result
	var results []line
	wrong := func(l line) int { return cmp.Or(map[string]int{wrongMark: -1}[l.mark], 0) }
	for _, l := range slices.SortedStableFunc(slices.Values(lines), func(a, b line) int {
		return cmp.Compare(wrong(a), wrong(b))
	}) {
		probe := l.probe
		l.probe = ""
		if blocks[l] == nil {
			results = append(results, l)
		}
		blocks[l] = append(blocks[l], probe)
	}
	probesShown := 3
	if len(results) > 2 {
		probesShown = 1
	}
	left := len(lines)
	for _, l := range results[:min(len(results), shownBlocks)] {
		probes := blocks[l]
		left -= len(probes)
		for _, probe := range probes[:min(len(probes), probesShown)] {
			fmt.Fprintf(b, "%s  %s\n", l.mark, probe)
		}
		if more := len(probes) - probesShown; more > 0 {
			fmt.Fprintf(b, "%s  and %d more alike\n", l.mark, more)
		}
		fmt.Fprintf(b, "   want %s\n   got  %s\n", l.want, l.got)
	}
	if left > 0 {
		fmt.Fprintf(b, "and %d more %s\n", left, noun.Plural(left, "row"))
	}
}

// writeFirstTrace writes the first trace in short, and how many further ones there are.
func writeFirstTrace(b *strings.Builder, probes []*probed) {
	var traces []*rowTrace
	for _, p := range probes {
		if p.trace != nil && p.trace.number > 0 {
			traces = append(traces, p.trace)
		}
	}
	if len(traces) == 0 {
		return
	}
	first := traces[0] // one that shows the failure, if there is one
	if i := slices.IndexFunc(traces, func(t *rowTrace) bool { return t.traced != nil && len(t.wrong) > 0 }); i >= 0 {
		first = traces[i]
	}
	first.writeShort(b)
	if more := len(traces) - 1; more > 0 {
		fmt.Fprintf(b, "and %d more %s\n", more, noun.Plural(more, "trace"))
	}
}
