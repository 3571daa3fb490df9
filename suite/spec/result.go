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

// Result is the verdict of one scenario on one proxier and the evidence for it.
type Result struct {
	Scenario Scenario
	Proxier  string
	Verdict  Verdict
	// Reason is one line for a skip or a broken run, and the full account of a failure. For a pass it has one line for
	// each note (Row.Choice, World.Note).
	Reason string
	// Missing are the features whose lack caused a skip.
	Missing []Feature
	// Took is the time from the scenario's start to its verdict, without the time spent waiting for other scenarios.
	Took time.Duration
	// Files are the files that a failure left behind, as paths relative to the report's folder.
	Files []string
	// Probed lists the probes and their outcomes, in the order of the steps.
	Probed []Probed
}

// Probed describes a row in one IP family after it was judged.
type Probed struct {
	// Step is the name of the row's step. It is empty if the scenario's only step has no name.
	Step string `json:"step,omitempty"`
	// Probe is what was sent, Want the required outcome and Got the observed one.
	Probe string `json:"probe"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
	// Path is the path of the first packet, or of the first one whose outcome was wrong.
	Path []Hop `json:"path"`
}

// Hop is a host on the path of a packet.
type Hop struct {
	Host string `json:"host"`
	// Node is the node of a pod. It is empty for other hosts.
	Node string `json:"node,omitempty"`
}
