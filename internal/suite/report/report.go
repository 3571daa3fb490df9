// SPDX-License-Identifier: Apache-2.0

// Package report writes down what a run has shown: for tools (JSON), for build servers (JUnit) and for people (a
// matrix).
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/suite/spec"
)

// Report is report.json. Its fields are a contract: tools read them.
type Report struct {
	Suite   Suite  `json:"suite"`
	Kernel  string `json:"kernel"`
	Cluster string `json:"cluster"` // overlay and why, pod network, families
	// how long the run took; what was taken together of several says nothing of it
	WallMS   int64     `json:"wall_ms,omitempty"`
	Proxiers []Proxier `json:"proxiers"`
	Results  []Result  `json:"results"`
}

// Suite describes the run.
type Suite struct {
	Version   string `json:"version"`
	Scenarios int    `json:"scenarios"` // how many were selected
}

// Proxier sums up one column of the matrix.
type Proxier struct {
	Name string `json:"name"`
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
	Priority    spec.Priority  `json:"priority"`
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

	scenario spec.Scenario            // zero in a report that was read from a file
	traces   map[string]*trace.Traced // by Probed.Trace
}

// New summarizes results. It lists proxiers and scenarios in the order of their first result.
func New(version, kernel, cluster string, results []spec.Result) Report {
	r := Report{Suite: Suite{Version: version}, Kernel: kernel, Cluster: cluster, Results: []Result{}}
	for _, x := range results {
		r.Results = append(r.Results, Result{
			Scenario: x.Scenario.ID, Proxier: x.Proxier, Priority: x.Scenario.Priority, Verdict: x.Verdict,
			Reason: x.Reason, Cause: x.Cause, TookMS: x.Took.Milliseconds(),
			Known: x.Known, OmittedRows: x.OmittedRows, Probed: x.Probed,
			Missing: append([]spec.Feature{}, x.Missing...), Files: append([]string{}, x.Files...), // [] in JSON, not null
			scenario: x.Scenario,
		})
	}
	r.sumUp()
	return r
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
// something failed, 2 if the harness broke or nothing ran.
func (r Report) ExitCode() int {
	var passed, failed, broken int
	for _, p := range r.Proxiers {
		passed, failed, broken = passed+p.Passed+p.Known, failed+p.Failed, broken+p.Broken
	}
	switch {
	case failed > 0:
		return 1
	case broken > 0 || passed == 0:
		return 2
	default:
		return 0
	}
}

// WriteJSON writes report.json into the folder, which it makes if need be.
func (r Report) WriteJSON(folder string) error {
	return WriteJSON(filepath.Join(folder, "report.json"), r)
}

// WriteJSON writes a value into a file, and makes its folder if need be.
func WriteJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(file), err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
