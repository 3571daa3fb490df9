// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/report"
)

// series are the runs on one proxier in clusters of one kind, the newest one first.
type series struct {
	Proxier  string
	Settings report.Settings
	File     string // of its page, in the site's folder
	Versions []*version
}

// version is a run of a series: a column of its page.
type version struct {
	*Run
	series  *series
	Proxier report.Proxier
	results map[string]*report.Result // by scenario
	// Comparison is what changed since the version before. It is nil for the oldest one.
	Comparison *report.Comparison
}

// slowerBy is how many times as long a scenario takes that counts as slower.
const slowerBy = 2

// add adds a run, the newest so far, to the series of one of its proxiers.
func (s *Site) add(r *Run, p report.Proxier) {
	i := slices.IndexFunc(s.series, func(x *series) bool { return x.Proxier == p.Name && x.Settings == r.Settings })
	if i < 0 {
		i = len(s.series)
		s.series = append(s.series, &series{Proxier: p.Name, Settings: r.Settings})
	}
	x := s.series[i]
	v := &version{Run: r, series: x, Proxier: p, results: map[string]*report.Result{}}
	for i := range r.Results {
		if result := &r.Results[i]; result.Proxier == p.Name {
			v.results[result.Scenario] = result
		}
	}
	if len(x.Versions) > 0 {
		c := report.Compare(x.Versions[0].alone(), v.alone(), slowerBy)
		v.Comparison = &c
	}
	x.Versions = slices.Insert(x.Versions, 0, v)
}

// alone returns the report without the other proxiers.
func (v *version) alone() report.Report {
	r := v.Report
	r.Proxiers = []report.Proxier{v.Proxier}
	other := func(x report.Result) bool { return x.Proxier != v.Proxier.Name }
	r.Results = slices.DeleteFunc(slices.Clone(r.Results), other)
	return r
}

// Title names the series: the proxier, and the flags of its clusters.
func (s *series) Title() string {
	texts := []string{s.Proxier}
	for _, x := range []struct{ flag, value string }{
		{"ip", s.Settings.IP}, {"pods", s.Settings.Pods}, {"overlay", s.Settings.Overlay},
		{"enforcer", s.Settings.Enforcer}, {"fault", s.Settings.Fault},
	} {
		if x.value != "" {
			texts = append(texts, x.flag+" "+x.value)
		}
	}
	return strings.Join(texts, ", ")
}

// Newest returns the newest version.
func (s *series) Newest() *version { return s.Versions[0] }

// Label names the version: that of the program if it is known, else that of viplab, which is that of built-in proxiers.
func (v *version) Label() string {
	if v.Proxier.Version != "" {
		return v.Proxier.Version
	}
	return "viplab " + v.Suite.Version
}

// When returns when the run began. No two runs of a site have the same.
func (r Run) When() string {
	_, number, _ := strings.Cut(r.Name, "Z")
	return r.Date.UTC().Format("2006-01-02 15:04:05") + number
}

// longestLabel is how long a label may be in the head of a column.
const longestLabel = 12

// Head is that of the version's column.
func (v *version) Head() string {
	if label := v.Label(); len(label) <= longestLabel {
		return label + " " + v.When()
	}
	return v.When()
}

// Address returns that of the page of the report, from the site's folder.
func (r Run) Address() string { return "reports/" + r.Name + "/report.html" }

// ComparisonAddress returns that of the page of the Comparison, from the site's folder.
func (v *version) ComparisonAddress() string {
	return fmt.Sprintf("compare/%s-%s.html", strings.TrimSuffix(v.series.File, ".html"), v.Name)
}

// Regressions returns what regressed since the version before.
func (v *version) Regressions() (out []report.Change) {
	if v.Comparison == nil {
		return nil
	}
	for _, c := range v.Comparison.Changes {
		if c.Kind == report.Regression {
			out = append(out, c)
		}
	}
	return out
}

// Count returns the number of changes of a kind.
func (v *version) Count(k string) int { return v.Comparison.Counts[report.ChangeKind(k)] }

// group is a group of scenarios.
type group struct {
	Name  string
	Lines []line
}

// line is a scenario with its results, one for each version.
type line struct {
	ID, Why string
	Cells   []cell
	Newest  *version // the newest version that has the scenario
}

// cell is a result of a version. Its result is nil if the version does not have the scenario.
type cell struct {
	*report.Result
	Version *version
	// Changed reports whether the verdict, or the cause of a skip, is another one than in the version before.
	Changed bool
}

// Groups returns the scenarios in the order of the newest report, and then those that only older ones have.
func (s *series) Groups() (out []group) {
	shown := map[string]bool{}
	for _, v := range s.Versions {
		for _, x := range v.Results {
			if x.Proxier != s.Proxier || shown[x.Scenario] {
				continue
			}
			shown[x.Scenario] = true
			i := slices.IndexFunc(out, func(g group) bool { return g.Name == x.Group })
			if i < 0 {
				i = len(out)
				out = append(out, group{Name: x.Group})
			}
			out[i].Lines = append(out[i].Lines, s.line(x, v))
		}
	}
	return out
}

func (s *series) line(x report.Result, newest *version) line {
	l := line{ID: x.Scenario, Why: x.Why, Newest: newest}
	for i, v := range s.Versions {
		c := cell{Result: v.results[x.Scenario], Version: v}
		if i+1 < len(s.Versions) {
			before := s.Versions[i+1].results[x.Scenario]
			c.Changed = c.Result != nil && (before == nil || before.Verdict != c.Verdict || before.Cause != c.Cause)
		}
		l.Cells = append(l.Cells, c)
	}
	return l
}

// Text is what a search finds the line by.
func (l line) Text() string { return strings.ToLower(l.ID + " " + l.Why) }
