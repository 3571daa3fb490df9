// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/viplab/viplab/internal/noun"
	"github.com/viplab/viplab/suite/spec"
)

var symbols = map[spec.Verdict]string{spec.Pass: "✓", spec.Known: "k", spec.Fail: "✗", spec.Skip: "–", spec.Broken: "!"}

// Style says how much to print, and how.
type Style struct {
	Colour bool
	// All prints all rows of the matrix with their times, choices of proxiers, rows that were not asked and the ids of
	// skipped scenarios, not only what is not as usual.
	All bool
	// Out is the folder that Result.Files are relative to. Empty leaves it out.
	Out string
	// Interrupted says that the run was interrupted: what is broken says nothing then.
	Interrupted bool
}

// Colours of a terminal.
const (
	red   = "\033[31m"
	green = "\033[32m"
)

func (s Style) in(colour, text string) string {
	if !s.Colour {
		return text
	}
	return colour + text + "\033[0m"
}

// blockLines is how many lines of an account are printed. The files of the failure have the rest.
const blockLines = 19

// WriteFailure prints what a failed or broken scenario is about, what went wrong, and the command that repeats it.
func (x Result) WriteFailure(w io.Writer, style Style) error {
	reason, again, repeatable := strings.Cut(x.Reason, "\nagain: ")
	reason, _, _ = strings.Cut(reason, "\ngoroutine ") // a panic has a stack of our own
	if x.Verdict == spec.Broken {
		reason = "BROKEN (the harness, not the proxier): " + reason
	}
	lines := strings.Split(reason, "\n")
	if more := len(lines) - blockLines; more > 1 {
		lines = append(lines[:blockLines], fmt.Sprintf("... %d more lines", more))
	}
	lines = append([]string{x.Why}, lines...)
	if len(x.Files) > 0 {
		lines = append(lines, "files: "+filepath.Join(style.Out, filepath.Dir(x.Files[0])))
	}
	if repeatable {
		lines = append(lines, "again: "+again)
	}
	title := style.in(red, fmt.Sprintf("%s %s on %s", symbols[x.Verdict], x.Scenario, x.Proxier))
	_, err := fmt.Fprintf(w, "%s\n  %s\n\n", title, strings.Join(lines, "\n  "))
	return err
}

// WriteFailures prints each scenario that failed or was broken.
func (r Report) WriteFailures(w io.Writer, style Style) error {
	for _, x := range r.only(Result.failed) {
		if err := x.WriteFailure(w, style); err != nil {
			return err
		}
	}
	return nil
}

func (x Result) failed() bool { return x.Verdict == spec.Fail || x.Verdict == spec.Broken }

// WriteSums prints the rows of the matrix in which a proxier did not pass, then skips by reason, then what was wrong, a
// line for each failure, then the counts.
func (r Report) WriteSums(w io.Writer, style Style) error {
	var b strings.Builder
	r.writeMatrix(&b, style)
	r.writeKnown(&b)
	if style.All {
		r.writeOmittedRows(&b)
		r.writeRemarks(&b)
		r.writeSlowest(&b)
		r.writeSkips(&b)
	} else {
		r.countSkips(&b)
	}
	r.writeReasons(&b, style)
	r.writeCounts(&b, style)
	_, err := io.WriteString(w, b.String())
	return err
}

// rowsShown is how many rows of the matrix are printed without Style.All.
const rowsShown = 40

// writeMatrix prints scenarios by proxiers, and an empty line, or nothing if no row is to be shown.
func (r Report) writeMatrix(b *strings.Builder, style Style) {
	var rows [][]Result
	for _, id := range r.scenarios() {
		row := r.only(func(x Result) bool { return x.Scenario == id })
		unusual := func(x Result) bool { return x.Verdict != spec.Pass && x.Verdict != spec.Skip }
		if style.All || slices.ContainsFunc(row, unusual) {
			rows = append(rows, row)
		}
	}
	more := 0
	if !style.All && len(rows) > rowsShown {
		more = len(rows) - rowsShown
		rows = rows[:rowsShown]
	}
	if len(rows) == 0 {
		return
	}
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "scenario\t")
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "\t%s", p.Name)
	}
	fmt.Fprintln(t)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s", row[0].Scenario, row[0].Priority)
		for _, p := range r.Proxiers {
			i := slices.IndexFunc(row, func(x Result) bool { return x.Proxier == p.Name })
			if i < 0 {
				fmt.Fprint(t, "\t")
				continue
			}
			fmt.Fprintf(t, "\t%s", symbols[row[i].Verdict])
			if style.All {
				fmt.Fprintf(t, " %s", took(row[i]))
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	failed := func(v spec.Verdict) []string { return []string{symbols[v], style.in(red, symbols[v])} }
	_, _ = strings.NewReplacer(append(failed(spec.Fail), failed(spec.Broken)...)...).WriteString(b, table.String())
	if more > 0 {
		fmt.Fprintf(b, "and %d more rows (report.html, --matrix)\n", more)
	}
	b.WriteByte('\n')
}

// The lines that say what was wrong: how many there are, and how wide they and the names in them are. The block of the
// only failure stands on the same screen as sums of few lines.
const (
	reasonsShown  = 20
	reasonColumns = 100
	nameColumns   = 50
	fewLines      = 12
)

// writeReasons prints a line for each failure, once for proxiers that fail alike, and an empty line. It leaves out the
// only failure if its block is just above, and what is broken by an interruption.
func (r Report) writeReasons(b *strings.Builder, style Style) {
	r.Results = r.only(func(x Result) bool { return x.failed() && (x.Verdict == spec.Fail || !style.Interrupted) })
	if len(r.Results) == 1 && strings.Count(b.String(), "\n")+len(r.Proxiers) <= fewLines {
		return
	}
	var lines []string
	for _, f := range r.failures(Result.lead) {
		for _, a := range f.Accounts {
			var on []string
			for _, x := range a.Results {
				on = append(on, x.Proxier)
			}
			text := cut(fmt.Sprintf(" %s on %s: %s", cut(f.Scenario, nameColumns), few(on), a.Text), reasonColumns-1)
			lines = append(lines, style.in(red, a.Results[0].Sign())+text)
		}
	}
	if more := len(lines) - reasonsShown; more > 0 {
		lines = append(lines[:reasonsShown], fmt.Sprintf("and %d more: see report.html", more))
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "%s\n\n", strings.Join(lines, "\n"))
	}
}

var (
	rowsFail = regexp.MustCompile(`\d+ of \d+ rows do not hold$`)
	fenced   = regexp.MustCompile(` \(fenced by [^)]*\)`) // how a silence was proved
)

// lead returns what was wrong, in one line: the first row that does not hold, or the first line of the reason.
func (x Result) lead() string {
	text, _, _ := strings.Cut(x.Reason, "\n")
	wrong := func(p spec.Probed) bool { return !p.Holds && p.Known == "" }
	if i := slices.IndexFunc(x.Probed, wrong); i >= 0 {
		p := x.Probed[i]
		row := fmt.Sprintf("%s: %s, want %s", p.Probe, fenced.ReplaceAllLiteralString(p.Got, ""), p.Want)
		text = rowsFail.ReplaceAllLiteralString(text, row)
	}
	if x.Verdict == spec.Broken {
		return "broken: " + text
	}
	return text
}

// cut shortens a text to a number of columns.
func cut(text string, columns int) string {
	if letters := []rune(text); len(letters) > columns {
		return string(letters[:columns-3]) + "..."
	}
	return text
}

// writeCounts prints the verdict and the counts of each proxier.
func (r Report) writeCounts(b *strings.Builder, style Style) {
	width := 0
	for _, p := range r.Proxiers {
		width = max(width, len(p.Name))
	}
	for _, p := range r.Proxiers {
		verdict := p.Verdict
		switch {
		case p.Failed+p.Broken > 0:
			verdict = style.in(red, verdict)
		case p.Verdict == "pass":
			verdict = style.in(green, verdict)
		}
		fmt.Fprintf(b, "%-*s    %s: %s\n", width, p.Name, verdict, p.counts())
	}
}

func (p Proxier) counts() string {
	text := fmt.Sprintf("%d passed, ", p.Passed)
	if p.Known > 0 {
		text += fmt.Sprintf("%d known (%s), ", p.Known, noun.Count(p.Issues, "deviation"))
	}
	text += fmt.Sprintf("%d failed, %d broken; %d %s, %d %s", p.Failed, p.Broken,
		p.NotApplicable, spec.NotApplicable, p.NotOffered, spec.NotOffered)
	if p.NotImplemented > 0 {
		text += fmt.Sprintf(", %d %s", p.NotImplemented, spec.NotImplemented)
	}
	if p.NotRun > 0 {
		text += fmt.Sprintf(", %d %s", p.NotRun, spec.NotRun)
	}
	if p.OmittedRows > 0 {
		text += fmt.Sprintf("; %s not asked", noun.Count(p.OmittedRows, "row"))
	}
	return text
}

// writeKnown prints each known deviation once, with the scenarios that show it.
func (r Report) writeKnown(b *strings.Builder) {
	for _, p := range r.Proxiers {
		issues := r.issues(p.Name)
		for _, issue := range slices.Sorted(maps.Keys(issues)) {
			fmt.Fprintf(b, "k %s: %s: %s\n", p.Name, issue, few(issues[issue]))
		}
	}
}

func (r Report) writeOmittedRows(b *strings.Builder) {
	for _, x := range r.Results {
		if len(x.OmittedRows) > 0 {
			fmt.Fprintf(b, "○ %s on %s, not asked: %s\n", x.Scenario, x.Proxier, strings.Join(x.OmittedRows, ", "))
		}
	}
}

// slowest is how many scenarios are named that took longest.
const slowest = 10

// writeSlowest names, for each proxier, the scenarios that took longest. They run side by side.
func (r Report) writeSlowest(b *strings.Builder) {
	for _, p := range r.Proxiers {
		ran := r.only(func(x Result) bool { return x.Proxier == p.Name && x.Verdict != spec.Skip })
		slices.SortStableFunc(ran, func(x, y Result) int { return cmp.Compare(y.TookMS, x.TookMS) })
		var texts []string
		for _, x := range ran[:min(len(ran), slowest)] {
			texts = append(texts, x.Scenario+" "+took(x))
		}
		if len(texts) > 0 {
			fmt.Fprintf(b, "slowest on %s: %s\n", p.Name, strings.Join(texts, ", "))
		}
	}
}

// writeRemarks prints how proxiers behave where they have a choice, as scenarios that passed remarked.
func (r Report) writeRemarks(b *strings.Builder) {
	for _, x := range r.only(func(x Result) bool { return x.Verdict == spec.Pass && x.Reason != "" }) {
		for line := range strings.SplitSeq(x.Reason, "\n") {
			fmt.Fprintf(b, "· %s on %s: %s\n", x.Scenario, x.Proxier, line)
		}
	}
}

func took(c Result) string {
	if c.Verdict == spec.Skip {
		return ""
	}
	took := time.Duration(c.TookMS) * time.Millisecond
	if took >= time.Second {
		took = took.Round(10 * time.Millisecond)
	}
	return took.String()
}

func (r Report) scenarios() []string {
	var ids []string
	for _, x := range r.Results {
		if !slices.Contains(ids, x.Scenario) {
			ids = append(ids, x.Scenario)
		}
	}
	return ids
}

// only returns the results that a test holds for.
func (r Report) only(is func(Result) bool) (out []Result) {
	for _, x := range r.Results {
		if is(x) {
			out = append(out, x)
		}
	}
	return out
}

// writeSkips prints each reason once, with the scenarios that it kept from running.
func (r Report) writeSkips(b *strings.Builder) {
	var reasons []string
	skipped, all := map[string][]string{}, len(r.scenarios())
	for _, x := range r.only(func(x Result) bool { return x.Verdict == spec.Skip }) {
		if skipped[x.Reason] == nil {
			reasons = append(reasons, x.Reason)
		}
		skipped[x.Reason] = append(skipped[x.Reason], x.Scenario)
	}
	for _, reason := range reasons {
		names := skipped[reason]
		text := strings.Join(names[:min(len(names), named)], ", ")
		switch {
		case all > 1 && len(names) == all:
			text = fmt.Sprintf("all %d scenarios", all)
		case len(names) > named:
			text += fmt.Sprintf(" and %d more (report.html)", len(names)-named)
		}
		fmt.Fprintf(b, "– %s: %s\n", reason, text)
	}
}

// named is how many of the scenarios are named that were skipped for one reason.
const named = 10

// countSkips prints how many scenarios were skipped for each reason, once for proxiers with the same reasons.
func (r Report) countSkips(b *strings.Builder) {
	type skips struct {
		proxiers []string
		n        int
		text     string
	}
	var all []skips
	for _, p := range r.Proxiers {
		skipped := r.only(func(x Result) bool { return x.Proxier == p.Name && x.Verdict == spec.Skip })
		if len(skipped) == 0 {
			continue
		}
		text := reasons(skipped)
		if i := slices.IndexFunc(all, func(s skips) bool { return s.text == text }); i >= 0 {
			all[i].proxiers = append(all[i].proxiers, p.Name)
		} else {
			all = append(all, skips{[]string{p.Name}, len(skipped), text})
		}
	}
	for _, s := range all {
		fmt.Fprintf(b, "– %s: %d skipped: %s\n", strings.Join(s.proxiers, ", "), s.n, s.text)
	}
	if len(all) > 0 {
		b.WriteByte('\n')
	}
}

// reasons counts skipped scenarios by reason: by the features that the proxier lacks, or by what else kept them from
// running. The most frequent reasons come first.
func reasons(skipped []Result) string {
	counts := map[string]int{}
	for _, x := range skipped {
		reason := x.Reason
		if text, ok := strings.CutPrefix(reason, fmt.Sprintf("%s: %s lacks ", x.Cause, x.Proxier)); ok {
			reason = fmt.Sprintf("%s (%s)", x.Cause, text)
		}
		counts[reason]++
	}
	texts := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, text := range texts {
		texts[i] = fmt.Sprintf("%d %s", counts[text], text)
	}
	return strings.Join(texts, ", ")
}
