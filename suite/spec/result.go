// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
	"time"
)

// Verdict is the outcome of a scenario on a proxier.
type Verdict string

// The verdicts. A skip is decided before anything is built. Known means that the scenario failed as an expectation
// foresees. Broken means that the harness failed, not the proxier.
const (
	Pass   Verdict = "pass"
	Known  Verdict = "known"
	Fail   Verdict = "fail"
	Skip   Verdict = "skip"
	Broken Verdict = "broken"
)

// Cause is why a scenario was skipped.
type Cause string

// The causes of skips.
const (
	NotApplicable  Cause = "not applicable"  // it is about a mechanism that the proxier does not have
	NotImplemented Cause = "not implemented" // the proxier lacks what the Service API promises
	NotOffered     Cause = "not offered"     // the proxier does not offer an option
	NotRun         Cause = "not run"         // this machine or cluster cannot run it
)

// CauseOf returns why a scenario is skipped on a proxier that lacks these features.
func CauseOf(missing []Feature) Cause {
	lacks := func(k Kind) bool { return slices.ContainsFunc(missing, func(f Feature) bool { return f.Kind() == k }) }
	switch {
	case lacks(Mechanism):
		return NotApplicable
	case lacks(Promise):
		return NotImplemented
	case lacks(Option):
		return NotOffered
	default:
		return NotRun
	}
}

// Result is the verdict of one scenario on one proxier, and the evidence.
type Result struct {
	Scenario Scenario
	Proxier  string
	Verdict  Verdict
	// Reason is one line for a skip or a broken run, the full report of a failure, and for a pass one line per note
	// (Row.Choice, World.Note).
	Reason string
	// Missing lists the missing features that caused a skip.
	Missing []Feature
	// Cause is why a scenario was skipped. It is empty if the scenario ran.
	Cause Cause
	// NotReady reports that the scenario failed because the proxier did not converge, as it had done before.
	NotReady bool
	// Known lists the known deviations that the scenario showed, each with its issue.
	Known []string
	// OmittedRows lists the rows that were not probed because they concern other proxiers (Row.If, Row.Unless), each with
	// the reason.
	OmittedRows []string
	// Took is the time from the scenario's start to its verdict, without the time spent waiting for other scenarios.
	Took time.Duration
	// Files lists the files of a failure, relative to the report's folder.
	Files []string
	// Probed lists the probes and their outcomes, in the order of the steps.
	Probed []Probed
}

// Probed describes a row in one IP family and its result, in words.
type Probed struct {
	// Step is the name of the row's step. It is empty in a scenario whose only step has no name.
	Step string `json:"step,omitempty"`
	// Row is the label of the row, by which expectations name it (Row.Label). The second row of a step with
	// the same label has "#2" added.
	Row string `json:"row"`
	// Family is the IP family: v4 or v6.
	Family string `json:"family"`
	// Outcomes are the unwanted outcomes of a row that does not hold: "Silence".
	Outcomes []string `json:"outcomes,omitempty"`
	// Known is the known deviation that makes the row fail.
	Known string `json:"known,omitempty"`
	// Probe describes the probe, Want the wanted result and Got the actual one.
	Probe string `json:"probe"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
	// Path is the path of the first packet, or of the first one whose result was wrong.
	Path []Hop `json:"path"`
	// Trace is the file with the trace of the probe, repeated after the row had failed: JSON, relative to the report's
	// folder. Beside it is the same as text. It is empty if there is none.
	Trace string `json:"trace,omitempty"`
}

// Hop is a host on a packet's path.
type Hop struct {
	Host string `json:"host"`
	// Node is the node that a pod is on. It is empty for other hosts.
	Node string `json:"node,omitempty"`
}
