// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

var symbols = map[spec.Verdict]string{spec.Pass: "✓", spec.Fail: "✗", spec.Skip: "–", spec.Broken: "!"}

// WriteMatrix prints scenarios by proxiers, then the counts, profiles and the reasons of skips.
func (r Report) WriteMatrix(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "scenario\t")
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "\t%s", p.Name)
	}
	fmt.Fprintln(t)
	for _, id := range r.scenarios() {
		cells := r.row(id)
		fmt.Fprintf(t, "%s\t%s", id, cells[0].Priority)
		for _, c := range cells {
			fmt.Fprintf(t, "\t%s %s", symbols[c.Verdict], took(c))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "%s\t\t%s: %d passed, %d failed, %d skipped, %d broken\n",
			p.Name, p.Verdict, p.Passed, p.Failed, p.Skipped, p.Broken)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeProfiles(w); err != nil {
		return err
	}
	if err := r.writeSlowest(w); err != nil {
		return err
	}
	return r.writeSkips(w)
}

// slowest is how many scenarios are named that took longest.
const slowest = 10

// writeSlowest names, for each proxier, the scenarios that took longest. They run side by side.
func (r Report) writeSlowest(w io.Writer) error {
	for _, p := range r.Proxiers {
		var ran []Result
		for _, x := range r.Results {
			if x.Proxier == p.Name && x.Verdict != spec.Skip {
				ran = append(ran, x)
			}
		}
		slices.SortStableFunc(ran, func(a, b Result) int { return cmp.Compare(b.TookMS, a.TookMS) })
		var texts []string
		for _, x := range ran[:min(len(ran), slowest)] {
			texts = append(texts, x.Scenario+" "+took(x))
		}
		if len(texts) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "slowest on %s: %s\n", p.Name, strings.Join(texts, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// writeProfiles prints what passes have to say of their proxiers: how they behave where they have a choice.
func (r Report) writeProfiles(w io.Writer) error {
	for _, x := range r.Results {
		if x.Verdict != spec.Pass || x.Reason == "" {
			continue
		}
		for line := range strings.Lines(x.Reason) {
			if _, err := fmt.Fprintf(w, "· %s on %s: %s\n", x.Scenario, x.Proxier, strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

func took(c Result) string {
	if c.Verdict == spec.Skip {
		return ""
	}
	return short(time.Duration(c.TookMS) * time.Millisecond)
}

func (r Report) scenarios() []string {
	var ids []string
	seen := map[string]bool{}
	for _, x := range r.Results {
		if !seen[x.Scenario] {
			seen[x.Scenario] = true
			ids = append(ids, x.Scenario)
		}
	}
	return ids
}

func (r Report) row(id string) []Result {
	var out []Result
	for _, x := range r.Results {
		if x.Scenario == id {
			out = append(out, x)
		}
	}
	return out
}

// writeSkips prints each reason once, with the scenarios that it kept from running.
func (r Report) writeSkips(w io.Writer) error {
	var reasons []string
	skipped := map[string][]string{}
	for _, x := range r.Results {
		if x.Verdict != spec.Skip {
			continue
		}
		if skipped[x.Reason] == nil {
			reasons = append(reasons, x.Reason)
		}
		skipped[x.Reason] = append(skipped[x.Reason], x.Scenario)
	}
	for _, reason := range reasons {
		what := strings.Join(skipped[reason], ", ")
		if all := len(r.scenarios()); all > 1 && len(skipped[reason]) == all {
			what = fmt.Sprintf("all %d scenarios", all)
		}
		if _, err := fmt.Fprintf(w, "– %s: %s\n", reason, what); err != nil {
			return err
		}
	}
	return nil
}
