// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// Verdict is the outcome of a scenario on a proxier.
type Verdict string

// The verdicts. A skip is decided before anything is built. Broken means that the harness failed, not the proxier.
const (
	Pass   Verdict = "pass"
	Fail   Verdict = "fail"
	Skip   Verdict = "skip"
	Broken Verdict = "broken"
)

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
	// Probe is what was sent, Want the wanted result and Got the actual one.
	Probe string `json:"probe"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
	// Path is the path of the first packet, or of the first one whose result was wrong.
	Path []Hop `json:"path"`
}

// Hop is a host on a packet's path.
type Hop struct {
	Host string `json:"host"`
	// Node is the node that a pod is on. It is empty for other hosts.
	Node string `json:"node,omitempty"`
}
