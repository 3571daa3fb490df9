// SPDX-License-Identifier: Apache-2.0

// Package report writes down what a run has shown: for tools (JSON), for build servers (JUnit) and for people (a
// matrix).
package report

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/files"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/suite/spec"
)

// APIVersion and Kind name the form of report.json. A change that breaks readers changes the version.
const (
	APIVersion = "viplab/v1"
	Kind       = "Report"
)

// Report is report.json, which docs/schema/report.json describes. Its fields are a contract: tools read them.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Date is when the run began, in UTC; of a merged report, when the first one began. It is zero if that is unknown.
	Date     time.Time `json:"date,omitzero"`
	Command  string    `json:"command,omitempty"` // quoted for a shell
	Suite    Suite     `json:"suite"`
	Kernel   string    `json:"kernel"`
	Cluster  string    `json:"cluster"` // overlay and why, pod network, families
	Settings Settings  `json:"settings,omitzero"`
	// WallMS is how long the run took, in milliseconds; of merged shards, how long the slowest one took.
	WallMS   int64     `json:"wall_ms,omitempty"`
	Proxiers []Proxier `json:"proxiers"`
	Results  []Result  `json:"results"`
	// Coverage is what generated cases have visited, by proxier. Without --random there is none.
	Coverage []Coverage `json:"coverage,omitempty"`
}

// Coverage is what the generated cases of a run on one proxier have visited. A count says how often.
type Coverage struct {
	Proxier   string `json:"proxier"`
	Seed      uint64 `json:"seed"`
	Cases     int    `json:"cases"`
	States    int    `json:"states"`
	Histories int    `json:"histories"` // cases with several states
	Rows      int    `json:"rows"`      // questions asked with packets
	// Values are the values of the fields of Services, and Pairs is the number of pairs of values of two fields that one
	// Service had.
	Values map[string]int `json:"values"`
	Pairs  int            `json:"pairs"`
	// Changes are the kinds of changes, and Rules the rules of the oracle that decided answers.
	Changes map[string]int `json:"changes"`
	Rules   map[string]int `json:"rules"`
	// Never lists what was never visited: rules, kinds of changes.
	Never []string `json:"never"`
}

// Suite describes what was run.
type Suite struct {
	Version   string `json:"version"`   // of viplab
	Scenarios int    `json:"scenarios"` // how many were selected
	// Shard is the part of the scenarios that ran, "1/4", or the parts that were merged while others are missing:
	// "1/4,3/4". It is empty if all ran. Whole is how many scenarios all shards have together, and 0 without shards.
	Shard string `json:"shard,omitempty"`
	Whole int    `json:"whole,omitempty"`
}

// Settings are what the flags of the command chose for every cluster, as the flags spell it.
type Settings struct {
	IP       string `json:"ip,omitempty"`
	Pods     string `json:"pods,omitempty"`
	Overlay  string `json:"overlay,omitempty"`
	Enforcer string `json:"enforcer,omitempty"`
	Fault    string `json:"fault,omitempty"`
}

// Proxier sums up one column of the matrix.
type Proxier struct {
	Name string `json:"name"`
	// Version is that of the program. It is empty if it is unknown.
	Version string `json:"version,omitempty"`
	// Features are those that the proxier declares, sorted. They are missing if that is unknown.
	Features []spec.Feature `json:"features,omitzero"`
	// Verdict is pass (everything that applies passed, but for options that are not offered), partial (what ran passed
	// or failed as known; something is known, not implemented or not run), fail (something failed or was broken) or
	// none (nothing ran).
	Verdict string `json:"verdict"`
	Passed  int    `json:"passed"`
	Known   int    `json:"known"`  // failed as expected
	Issues  int    `json:"issues"` // that name the known deviations
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
	// The skipped ones, by cause.
	NotApplicable  int `json:"not_applicable"`
	NotImplemented int `json:"not_implemented"`
	NotOffered     int `json:"not_offered"`
	NotRun         int `json:"not_run"`
	Broken         int `json:"broken"`
	// OmittedRows is the number of rows that were left out because they concern other proxiers.
	OmittedRows int   `json:"not_asked"`
	TookMS      int64 `json:"took_ms"` // the sum over its scenarios, which run side by side
}

// Result is one cell of the matrix.
type Result struct {
	Scenario    string         `json:"scenario"`
	Proxier     string         `json:"proxier"`
	Group       string         `json:"group,omitempty"`
	Priority    spec.Priority  `json:"priority"`
	Why         string         `json:"why,omitempty"`   // what the scenario is about
	Needs       []spec.Feature `json:"needs,omitempty"` // of the proxier
	Verdict     spec.Verdict   `json:"verdict"`
	Reason      string         `json:"reason"`
	Missing     []spec.Feature `json:"missing"`
	Cause       spec.Cause     `json:"cause,omitempty"`     // of a skip
	Known       []string       `json:"known,omitempty"`     // the known deviations that it showed
	OmittedRows []string       `json:"not_asked,omitempty"` // rows that were left out, with the reason
	TookMS      int64          `json:"took_ms"`
	Files       []string       `json:"files"`
	// Probed is what was sent, wanted and seen. Nothing was where a scenario did not run.
	Probed []spec.Probed `json:"probed,omitempty"`

	traces map[string]*trace.Traced // by Probed.Trace
}

// New summarizes results. It lists proxiers and scenarios in the order of their first result.
func New(version, kernel, cluster string, results []spec.Result) Report {
	r := Report{APIVersion: APIVersion, Kind: Kind, Suite: Suite{Version: version}, Kernel: kernel, Cluster: cluster,
		Results: []Result{}}
	for _, x := range results {
		r.Results = append(r.Results, ResultOf(x))
	}
	r.sumUp()
	return r
}

// ResultOf returns the cell for a result.
func ResultOf(x spec.Result) Result {
	return Result{
		Scenario: x.Scenario.ID, Proxier: x.Proxier, Group: x.Scenario.Group, Priority: x.Scenario.Priority,
		Why: x.Scenario.Why, Needs: x.Scenario.Needs, Verdict: x.Verdict,
		Reason: x.Reason, Cause: x.Cause, TookMS: x.Took.Milliseconds(),
		Known: x.Known, OmittedRows: x.OmittedRows, Probed: x.Probed,
		Missing: append([]spec.Feature{}, x.Missing...), Files: append([]string{}, x.Files...), // [] in JSON, not null
	}
}

// SetVersion sets the version of a proxier. It adds a proxier without results, as in an empty shard.
func (r *Report) SetVersion(proxier, version string) { r.proxier(proxier).Version = version }

// SetFeatures sets the features that a proxier declares. It adds a proxier without results, as SetVersion does.
func (r *Report) SetFeatures(proxier string, declared spec.FeatureSet) {
	r.proxier(proxier).Features = append([]spec.Feature{}, declared.List()...) // [] in JSON if it declares none
}

// proxier returns the proxier of that name. It adds one without results if need be.
func (r *Report) proxier(name string) *Proxier {
	i := slices.IndexFunc(r.Proxiers, func(p Proxier) bool { return p.Name == name })
	if i < 0 {
		i = len(r.Proxiers)
		r.Proxiers = append(r.Proxiers, Proxier{Name: name, Verdict: "none"})
	}
	return &r.Proxiers[i]
}

func (p Proxier) verdict() string {
	switch {
	case p.Failed+p.Broken > 0:
		return "fail"
	case p.Passed+p.Known == 0:
		return "none"
	case p.Known+p.NotImplemented+p.NotRun > 0:
		return "partial"
	default:
		return "pass"
	}
}

// ExitCode returns the exit code for the report: 0 if something ran and all of it passed or failed as known, 1 if
// something failed, 2 if the harness broke or nothing ran. In a shard, nothing need run: other shards may.
func (r Report) ExitCode() int {
	var passed, failed, broken int
	for _, p := range r.Proxiers {
		passed, failed, broken = passed+p.Passed+p.Known, failed+p.Failed, broken+p.Broken
	}
	switch {
	case failed > 0:
		return 1
	case broken > 0 || passed == 0 && r.Suite.Shard == "":
		return 2
	default:
		return 0
	}
}

// WriteJSON writes report.json into the folder, which it makes if need be.
func (r Report) WriteJSON(folder string) error {
	return WriteJSON(filepath.Join(folder, "report.json"), r)
}

// WriteFile writes a file completely or not at all, and makes its folder if need be.
func WriteFile(file string, data []byte) error { return files.Write(file, data) }

// WriteJSON writes a value into a file, and makes its folder if need be.
func WriteJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(file), err)
	}
	return WriteFile(file, append(data, '\n'))
}
