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

// results are the results of tests in one place.
type results struct {
	place   string
	verdict map[test]string // "pass", "fail", "skip"
	reasons map[test]string // of those skipped
	broken  []string        // packages that do not build, crash or hang
}

func newResults(place string) *results {
	return &results{place: place, verdict: map[test]string{}, reasons: map[test]string{}}
}

// merge adds the results of other packages.
func (r *results) merge(other *results) {
	maps.Copy(r.verdict, other.verdict)
	maps.Copy(r.reasons, other.reasons)
	r.broken = append(r.broken, other.broken...)
}

func (r *results) fault(err error) { r.broken = append(r.broken, err.Error()) }

// leaves returns the tests without subtests, in order. A test that only groups others would count twice.
func (r *results) leaves(verdict string) []test {
	groups := map[test]bool{}
	for t := range r.verdict {
		for i := strings.LastIndex(t.name, "/"); i > 0; i = strings.LastIndex(t.name[:i], "/") {
			groups[test{t.pkg, t.name[:i]}] = true
		}
	}
	var out []test
	for t, v := range r.verdict {
		// A group fails by itself too, but a failed leaf of it has been counted then.
		if v == verdict && !groups[t] {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, compareTests)
	return out
}

type counts struct{ passed, failed, skipped, broken int }

func (r *results) count() counts {
	c := counts{len(r.leaves("pass")), len(r.leaves("fail")), len(r.leaves("skip")), len(r.broken)}
	if c.failed == 0 {
		for _, v := range r.verdict {
			if v == "fail" { // a group that failed outside of its subtests
				c.failed++
			}
		}
	}
	return c
}

// summary reports what ran where. Its last line counts each test once: as skipped only if no place could run it.
func summary(all []*results, took time.Duration) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHERE\tPASSED\tFAILED\tSKIPPED\tBROKEN")
	total := counts{}
	for _, r := range all {
		c := r.count()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", r.place, c.passed, c.failed, c.skipped, c.broken)
		total.passed, total.failed, total.broken = total.passed+c.passed, total.failed+c.failed, total.broken+c.broken
	}
	t.Flush()
	for _, r := range all {
		for _, x := range r.leaves("fail") {
			fmt.Fprintf(&b, "failed (%s): %s %s\n", r.place, x.pkg, x.name)
		}
		for _, x := range r.broken {
			fmt.Fprintf(&b, "broken (%s): %s\n", r.place, x)
		}
	}
	skipped := skippedEverywhere(all)
	total.skipped = len(skipped)
	b.WriteString(grouped(skipped, all[0].reasons))
	// A broken package counts as failed here, for readers of this line alone.
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d skipped", total.passed, total.failed+total.broken, total.skipped)
	return fmt.Sprintf("all tests, %v\n%s", took.Round(time.Second), b.String())
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
		return slices.ContainsFunc(all[1:], func(r *results) bool {
			v, ran := r.verdict[x]
			return ran && v != "skip"
		})
	})
}
