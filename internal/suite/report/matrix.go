// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

var symbols = map[spec.Verdict]string{spec.Pass: "✓", spec.Known: "k", spec.Fail: "✗", spec.Skip: "–", spec.Broken: "!"}

// WriteFailures prints each scenario that failed or was broken: what it is about and what went wrong.
func (r Report) WriteFailures(w io.Writer, colour bool) error {
	var b strings.Builder
	for _, x := range r.only(func(x Result) bool { return x.Verdict == spec.Fail || x.Verdict == spec.Broken }) {
		title := fmt.Sprintf("%s %s on %s", symbols[x.Verdict], x.Scenario, x.Proxier)
		if colour {
			title = "\033[31m" + title + "\033[0m"
		}
		text := x.Why + "\n" + x.Reason
		if x.Verdict == spec.Broken {
			text = "BROKEN (the harness, not the proxier): " + x.Reason
		}
		fmt.Fprintf(&b, "%s\n  %s\n\n", title, strings.ReplaceAll(text, "\n", "\n  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMatrix prints scenarios by proxiers, then the counts, remarks, the slowest scenarios and the reasons of skips.
func (r Report) WriteMatrix(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "scenario\t")
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "\t%s", p.Name)
	}
	fmt.Fprintln(t)
	for _, id := range r.scenarios() {
		cells := r.only(func(x Result) bool { return x.Scenario == id })
		fmt.Fprintf(t, "%s\t%s", id, cells[0].Priority)
		for _, c := range cells {
			fmt.Fprintf(t, "\t%s %s", symbols[c.Verdict], took(c))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "%s\t\t%s: %s\n", p.Name, p.Verdict, p.counts())
	}
	t.Flush()
	r.writeKnown(&b)
	r.writeOmittedRows(&b)
	r.writeRemarks(&b)
	r.writeSlowest(&b)
	r.writeSkips(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Proxier) counts() string {
	text := fmt.Sprintf("%d passed, ", p.Passed)
	if p.Known > 0 {
		text += fmt.Sprintf("%d known (%d deviations), ", p.Known, p.Issues)
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
		text += fmt.Sprintf("; %d rows not asked", p.OmittedRows)
	}
	return text
}

// writeKnown prints each known deviation once, with the scenarios that show it.
func (r Report) writeKnown(b *strings.Builder) {
	for _, p := range r.Proxiers {
		issues := r.issues(p.Name)
		for _, issue := range slices.Sorted(maps.Keys(issues)) {
			fmt.Fprintf(b, "k %s: %s: %s\n", p.Name, issue, strings.Join(issues[issue], ", "))
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
