// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/suite/spec"
)

// stackWord is the IP families in the description of a cluster: its end, or before what stands beside the proxiers.
var stackWord = regexp.MustCompile(`, (dual|4|6)(, enforcer |; |$)`)

// families returns the description of a cluster with its IP families in words.
func families(cluster string) string {
	return stackWord.ReplaceAllStringFunc(cluster, func(text string) string {
		parts := stackWord.FindStringSubmatch(text)
		return ", " + stack(parts[1]) + parts[2]
	})
}

// stack returns the IP families of a cluster in words: of "4", "6" or "dual".
func stack(ip string) string {
	if ip == "dual" {
		return "IPv4 and IPv6"
	}
	return "IPv" + ip + " only"
}

// lineGroup is a group of the matrix of a page.
type lineGroup struct {
	PageGroup
	Lines []line
}

// line is a line of the matrix: a scenario, or a row of the catalogue that has none. Text is what a search finds it by.
type line struct {
	ID, Why, Text string
	Row           PageRow
	Scenario      *PageScenario
	// Cells are the results, one for each proxier of the report, nil where there is none.
	Cells  []*Result
	Detail *detail
}

// detail is what the page shows of a scenario on request. The script reads it.
type detail struct {
	Group    string        `json:"group"`
	Row      PageRow       `json:"row"`
	Scenario *PageScenario `json:"scenario"`
	Results  []*Result     `json:"results"`
	// Linked are the files that the page can link to.
	Linked []string                 `json:"linked"`
	Traces map[string]*trace.Traced `json:"traces"`
}

// matrix returns the lines of the page's matrix. Files that are in the folder are linked.
func (r Report) matrix(page Page, folder string) []lineGroup {
	type cell struct{ scenario, proxier string }
	results := map[cell]*Result{}
	for i := range r.Results {
		results[cell{r.Results[i].Scenario, r.Results[i].Proxier}] = &r.Results[i]
	}
	groups := make([]lineGroup, 0, len(page.Groups))
	for _, g := range page.Groups {
		group := lineGroup{PageGroup: g}
		for _, row := range g.Rows {
			if len(row.Scenarios) == 0 {
				group.Lines = append(group.Lines, newLine(row, nil))
			}
			for i := range row.Scenarios {
				l := newLine(row, &row.Scenarios[i])
				for _, p := range r.Proxiers {
					l.Cells = append(l.Cells, results[cell{l.ID, p.Name}])
				}
				l.Detail = newDetail(g, l, folder)
				group.Lines = append(group.Lines, l)
			}
		}
		groups = append(groups, group)
	}
	return groups
}

func newLine(row PageRow, s *PageScenario) line {
	l := line{ID: row.ID, Why: row.Behaviour, Row: row, Scenario: s}
	if s != nil {
		l.ID, l.Why = s.ID, s.Why
	}
	l.Text = strings.ToLower(strings.Join([]string{row.ID, l.ID, l.Why, row.Behaviour}, " "))
	return l
}

func newDetail(g PageGroup, l line, folder string) *detail {
	d := &detail{Group: g.Title, Row: l.Row, Scenario: l.Scenario, Linked: []string{},
		Traces: map[string]*trace.Traced{}}
	d.Row.Scenarios = nil
	for _, x := range l.Cells {
		if x == nil {
			continue
		}
		d.Results = append(d.Results, x)
		maps.Copy(d.Traces, x.traces)
		for _, name := range x.Files {
			if !filepath.IsLocal(name) {
				continue
			}
			if info, err := os.Stat(filepath.Join(folder, name)); err == nil && !info.IsDir() {
				d.Linked = append(d.Linked, name)
			}
		}
	}
	return d
}

// failure is a scenario that failed or was broken, with what was wrong on which proxiers.
type failure struct {
	Scenario, Why string
	Accounts      []account
}

// account is what was wrong, in one line, and where: on these proxiers.
type account struct {
	Text    string
	Results []Result
}

// failures returns the failures in the order of the report, each scenario once, and what was wrong as line says it.
func (r Report) failures(line func(Result) string) (out []failure) {
	for _, x := range r.only(Result.failed) {
		i := slices.IndexFunc(out, func(f failure) bool { return f.Scenario == x.Scenario })
		if i < 0 {
			i = len(out)
			out = append(out, failure{Scenario: x.Scenario, Why: x.Why})
		}
		f := &out[i]
		text := line(x)
		k := slices.IndexFunc(f.Accounts, func(a account) bool { return a.Text == text })
		if k < 0 {
			k = len(f.Accounts)
			f.Accounts = append(f.Accounts, account{Text: text})
		}
		f.Accounts[k].Results = append(f.Accounts[k].Results, x)
	}
	return out
}

func firstLine(x Result) string {
	text, _, _ := strings.Cut(x.Reason, "\n")
	if x.Verdict == spec.Broken {
		return "broken (the harness, not the proxier): " + text
	}
	return text
}

// deviation is a known deviation with the results that show it.
type deviation struct {
	Text    string
	Results []Result
}

// knownDeviations returns the known deviations that were seen, each once.
func (r Report) knownDeviations() (out []deviation) {
	for _, x := range r.Results {
		for _, text := range x.Known {
			i := slices.IndexFunc(out, func(d deviation) bool { return d.Text == text })
			if i < 0 {
				i = len(out)
				out = append(out, deviation{Text: text})
			}
			out[i].Results = append(out[i].Results, x)
		}
	}
	return out
}

// counter is a sum of a proxier. Value is that of the filter which shows its scenarios.
type counter struct {
	Title, Value string
	Count        int
}

func counters(p Proxier) []counter {
	return []counter{
		{"failed", "fail", p.Failed}, {"broken", "broken", p.Broken}, {"known", "known", p.Known},
		{"passed", "pass", p.Passed},
		{string(spec.NotApplicable), "not-applicable", p.NotApplicable},
		{string(spec.NotOffered), "not-offered", p.NotOffered},
		{string(spec.NotImplemented), "not-implemented", p.NotImplemented}, {string(spec.NotRun), "not-run", p.NotRun},
	}
}

// Classes returns those of the result's cell: its verdict, and the cause of a skip. The filter compares them.
func (x Result) Classes() string {
	return strings.TrimSpace(string(x.Verdict) + " " + strings.ReplaceAll(string(x.Cause), " ", "-"))
}

var verdictWords = map[spec.Verdict]string{spec.Pass: "passed", spec.Known: "failed as known", spec.Fail: "failed",
	spec.Broken: "broken", spec.Skip: "skipped"}

// Sign returns that of the verdict.
func (x Result) Sign() string { return symbols[x.Verdict] }

// Words returns what the result's cell shows, in words.
func (x Result) Words() string {
	text := verdictWords[x.Verdict]
	if x.Cause != "" {
		text += ", " + string(x.Cause)
	}
	return strings.TrimSpace(text + " " + took(x))
}

// shownFailures is how many failed scenarios the page lists at once.
const shownFailures = 12

// first returns the failures that the page lists at once, or those that it folds.
func first(failures []failure, folded bool) []failure {
	n := min(len(failures), shownFailures)
	if folded {
		return failures[n:]
	}
	return failures[:n]
}

// failed counts what failed and what was broken.
func (r Report) failed() string {
	failed, broken := 0, 0
	for _, p := range r.Proxiers {
		failed, broken = failed+p.Failed, broken+p.Broken
	}
	switch {
	case failed == 0:
		return fmt.Sprintf("%d broken", broken)
	case broken == 0:
		return fmt.Sprintf("%d failed", failed)
	default:
		return fmt.Sprintf("%d failed, %d broken", failed, broken)
	}
}
