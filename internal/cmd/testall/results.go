// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// test identifies one test: "TestX/sub" of a package.
type test struct{ pkg, name string }

func compareTests(a, b test) int {
	return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
}

type results struct {
	place   string
	verdict map[test]string // "pass", "fail", "skip"
	why     map[test]string // the reason of those skipped, and what those failed printed
	took    map[test]time.Duration
	broken  []string // packages that do not build, crash or hang; what they printed may follow in further lines
}

func newResults(place string) *results {
	return &results{place: place, verdict: map[test]string{}, why: map[test]string{}, took: map[test]time.Duration{}}
}

func (r *results) merge(other *results) {
	maps.Copy(r.verdict, other.verdict)
	maps.Copy(r.why, other.why)
	maps.Copy(r.took, other.took)
	r.broken = append(r.broken, other.broken...)
}

// breaks notes that a package is broken, and what it said.
func (r *results) breaks(why string, said ...string) {
	r.broken = append(r.broken, strings.TrimSpace(why+"\n"+excerpt(said...)))
}

// leaves returns the tests without subtests, in order. A test that only groups others would count twice. A group may
// fail outside of its subtests; it counts if none of those failed.
func (r *results) leaves(verdict string) []test {
	groups := map[test]bool{}
	for t, v := range r.verdict {
		if verdict == "fail" && v != "fail" {
			continue
		}
		for i := strings.LastIndex(t.name, "/"); i > 0; i = strings.LastIndex(t.name[:i], "/") {
			groups[test{t.pkg, t.name[:i]}] = true
		}
	}
	var out []test
	for t, v := range r.verdict {
		if v == verdict && !groups[t] {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, compareTests)
	return out
}

type counts struct{ passed, failed, skipped, broken int }

func (r *results) count() counts {
	return counts{len(r.leaves("pass")), len(r.leaves("fail")), len(r.leaves("skip")), len(r.broken)}
}

// mostSlow is how many tests the summary lists as slowest.
const mostSlow = 10

// slowest lists the tests that took longest, each with its subtests.
func slowest(all []*results) string {
	type entry struct {
		test
		place string
		took  time.Duration
	}
	var entries []entry
	for _, r := range all {
		for t, took := range r.took {
			if t.name != "" && !strings.Contains(t.name, "/") && took >= time.Second {
				entries = append(entries, entry{t, r.place, took})
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.took, a.took), compareTests(a.test, b.test), cmp.Compare(a.place, b.place))
	})
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range entries[:min(len(entries), mostSlow)] {
		name := strings.TrimPrefix(e.pkg, module+"/") + " " + e.name
		fmt.Fprintf(table, "slow (%s):\t%s\t%s\n", e.place, e.took.Round(time.Second), name)
	}
	table.Flush()
	return b.String()
}

// summary reports what failed and what ran where. Readers of a long log see its end only, so what they need first is
// last: below the output of all that failed comes a list of it. The last line counts each test once: as skipped only if
// no place could run it.
func summary(all []*results, took time.Duration) string {
	var b, list strings.Builder
	fmt.Fprintf(&b, "all tests, %v\n%s", took.Round(time.Second), slowest(all))
	table := tabwriter.NewWriter(&list, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHERE\tPASSED\tFAILED\tSKIPPED\tBROKEN")
	passed, failed := 0, 0
	for _, r := range all {
		c := r.count()
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", r.place, c.passed, c.failed, c.skipped, c.broken)
		// A broken package counts as failed in the last line, for readers of that line alone.
		passed, failed = passed+c.passed, failed+c.failed+c.broken
	}
	table.Flush()
	for _, r := range all {
		for _, x := range r.leaves("fail") {
			line := fmt.Sprintf("failed (%s): %s %s\n", r.place, x.pkg, x.name)
			fmt.Fprintf(&b, "%s%s\n", line, r.why[x])
			list.WriteString(line)
		}
		for _, x := range r.broken {
			why, _, _ := strings.Cut(x, "\n")
			fmt.Fprintf(&b, "broken (%s): %s\n\n", r.place, x)
			fmt.Fprintf(&list, "broken (%s): %s\n", r.place, why)
		}
	}
	skipped := skippedEverywhere(all)
	list.WriteString(grouped(skipped, lastReasons(skipped, all)))
	fmt.Fprintf(&list, "\n%d passed, %d failed, %d skipped", passed, failed, len(skipped))
	return b.String() + list.String()
}

// grouped returns a line for each reason for which tests were skipped: a feature that a kernel lacks skips many.
func grouped(skipped []test, reasons map[test]string) string {
	type cause struct{ pkg, reason string }
	var order []cause
	names := map[cause][]string{}
	for _, x := range skipped {
		c := cause{x.pkg, reasons[x]}
		if names[c] == nil {
			order = append(order, c)
		}
		names[c] = append(names[c], x.name)
	}
	var b strings.Builder
	for _, c := range order {
		who := names[c][0]
		if more := len(names[c]) - 1; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(&b, "skipped everywhere: %s %s: %s\n", c.pkg, who, c.reason)
	}
	return b.String()
}

func skippedEverywhere(all []*results) []test {
	return slices.DeleteFunc(all[0].leaves("skip"), func(x test) bool {
		return slices.ContainsFunc(all[1:], func(r *results) bool { return cmp.Or(r.verdict[x], "skip") != "skip" })
	})
}

// lastReasons returns why tests were skipped: where they were tried last, which has more than what was tried before.
func lastReasons(skipped []test, all []*results) map[test]string {
	why := map[test]string{}
	for _, r := range all {
		for _, x := range skipped {
			why[x] = cmp.Or(r.why[x], why[x])
		}
	}
	return why
}
