// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// ChangeKind says how a cell of the matrix differs between two reports.
type ChangeKind string

// The kinds of changes, in the order of a comparison.
const (
	Regression ChangeKind = "regression"    // it fails, or is broken, and did not before
	StillFails ChangeKind = "still failing" // it failed, or was broken, before and does so now
	Fixed      ChangeKind = "fixed"         // it failed, or was broken, and does no longer
	KnownNow   ChangeKind = "known now"     // it passed, and fails now as an expectation foresees
	PassesNow  ChangeKind = "passes now"    // it failed as an expectation foresaw, and passes now
	NewSkip    ChangeKind = "new skip"      // it ran, and is skipped now
	Gone       ChangeKind = "gone"          // it ran, and the new report does not have it
	Added      ChangeKind = "added"         // it passes, and did not run before
	Slower     ChangeKind = "slower"        // it passes both times, and takes much longer now
)

// ChangeKinds are all kinds, in the order of a comparison.
var ChangeKinds = []ChangeKind{
	Regression, StillFails, Fixed, KnownNow, PassesNow, NewSkip, Gone, Added, Slower,
}

// Change is a cell that differs between two reports.
type Change struct {
	Kind     ChangeKind   `json:"kind"`
	Scenario string       `json:"scenario"`
	Proxier  string       `json:"proxier"`
	Group    string       `json:"group,omitempty"`
	Why      string       `json:"why,omitempty"` // what the scenario is about
	Old      spec.Verdict `json:"old,omitempty"` // empty if the old report does not have the cell
	New      spec.Verdict `json:"new,omitempty"`
	OldMS    int64        `json:"old_ms,omitempty"`
	NewMS    int64        `json:"new_ms,omitempty"`
	// Reason is that of the new verdict; of a cell that is gone or fixed, that of the old one.
	Reason string `json:"reason,omitempty"`
}

// ComparisonKind is the kind of the JSON form of a Comparison.
const ComparisonKind = "Comparison"

// Comparison is what changed from one report to another. docs/schema/comparison.json describes its JSON form.
type Comparison struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Old        Side   `json:"old"`
	New        Side   `json:"new"`
	// Counts has the number of changes of each kind that occurs, and Same the number of cells that did not change.
	Counts  map[ChangeKind]int `json:"counts"`
	Same    int                `json:"same"`
	Changes []Change           `json:"changes"`
}

// Side is what is compared: the head of a report.
type Side struct {
	Date     time.Time `json:"date,omitzero"`
	Version  string    `json:"version"` // of viplab
	Kernel   string    `json:"kernel"`
	Cluster  string    `json:"cluster"`
	Proxiers []string  `json:"proxiers"` // with their versions, if these are known: "my-proxy v1.2"
}

func sideOf(r Report) Side {
	s := Side{Date: r.Date, Version: r.Suite.Version, Kernel: r.Kernel, Cluster: r.Cluster, Proxiers: []string{}}
	for _, p := range r.Proxiers {
		s.Proxiers = append(s.Proxiers, strings.TrimSpace(p.Name+" "+p.Version))
	}
	return s
}

// slowerBy is the least difference that counts as slower. Less is noise.
const slowerBy = time.Second

// Compare returns what changed from one report to another. Cells belong together if they have the same scenario and
// proxier. If each report is of one proxier, these belong together whatever their names are. A scenario is slower if it
// takes at least factor times as long, and a second longer.
func Compare(from, to Report, factor float64) Comparison {
	c := Comparison{APIVersion: APIVersion, Kind: ComparisonKind, Old: sideOf(from), New: sideOf(to),
		Counts: map[ChangeKind]int{}, Changes: []Change{}}
	rename := func(name string) string { return name }
	if len(from.Proxiers) == 1 && len(to.Proxiers) == 1 {
		rename = func(string) string { return to.Proxiers[0].Name }
	}
	type cell struct{ scenario, proxier string }
	before, after := map[cell]*Result{}, map[cell]*Result{}
	var cells []cell
	for i := range to.Results {
		x := &to.Results[i]
		at := cell{x.Scenario, x.Proxier}
		after[at], cells = x, append(cells, at)
	}
	for i := range from.Results {
		x := &from.Results[i]
		at := cell{x.Scenario, rename(x.Proxier)}
		if before[at] = x; after[at] == nil {
			cells = append(cells, at)
		}
	}
	for _, at := range cells {
		change := changeOf(before[at], after[at], factor)
		if change.Kind == "" {
			c.Same++
			continue
		}
		change.Proxier = at.proxier
		c.Counts[change.Kind]++
		c.Changes = append(c.Changes, change)
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return slices.Index(ChangeKinds, a.Kind) - slices.Index(ChangeKinds, b.Kind)
	})
	return c
}

// changeOf compares a cell with what it was; either may be nil. Without a difference the change has no kind.
func changeOf(before, after *Result, factor float64) Change {
	shown := after
	var c Change
	if before != nil {
		c.Old, c.OldMS = before.Verdict, before.TookMS
	}
	if after != nil {
		c.New, c.NewMS = after.Verdict, after.TookMS
	}
	fails := func(v spec.Verdict) bool { return v == spec.Fail || v == spec.Broken }
	ran := func(v spec.Verdict) bool { return v != "" && v != spec.Skip }
	slow := float64(c.NewMS) >= factor*float64(c.OldMS) && c.NewMS >= c.OldMS+slowerBy.Milliseconds()
	switch {
	case fails(c.New) && fails(c.Old):
		c.Kind = StillFails
	case fails(c.New):
		c.Kind = Regression
	case c.New == "" && ran(c.Old):
		c.Kind, shown = Gone, before
	case c.New == spec.Skip && ran(c.Old):
		c.Kind = NewSkip
	case fails(c.Old) && ran(c.New):
		c.Kind, shown = Fixed, before
	case !ran(c.Old) && ran(c.New):
		c.Kind = Added
	case c.Old == spec.Pass && c.New == spec.Known:
		c.Kind = KnownNow
	case c.Old == spec.Known && c.New == spec.Pass:
		c.Kind, shown = PassesNow, before
	case c.Old == spec.Pass && c.New == spec.Pass && slow:
		c.Kind = Slower
	default:
		return Change{}
	}
	c.Scenario, c.Group, c.Why, c.Reason = shown.Scenario, shown.Group, shown.Why, shown.Reason
	return c
}

// ExitCode returns 1 if something regressed, else 0.
func (c Comparison) ExitCode() int { return min(c.Counts[Regression], 1) }

// Differences are the settings in which the reports differ, as text, apart from their dates.
func (c Comparison) Differences() (texts []string) {
	for _, x := range []struct{ what, before, after string }{
		{"proxier", strings.Join(c.Old.Proxiers, ", "), strings.Join(c.New.Proxiers, ", ")},
		{"kernel", c.Old.Kernel, c.New.Kernel},
		{"viplab", c.Old.Version, c.New.Version},
		{"cluster", c.Old.Cluster, c.New.Cluster},
	} {
		if x.before != x.after {
			texts = append(texts, fmt.Sprintf("%s %s, was %s", x.what, x.after, x.before))
		}
	}
	return texts
}
