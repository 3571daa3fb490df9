// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// Verdict is the outcome of a scenario on a proxier.
type Verdict string

// The verdicts. A skip is decided before anything is built; broken means that the harness failed, not the proxier.
const (
	Pass   Verdict = "pass"
	Fail   Verdict = "fail"
	Skip   Verdict = "skip"
	Broken Verdict = "broken"
)

// Result is the verdict of one scenario on one proxier, with what led to it.
type Result struct {
	Scenario Scenario
	Proxier  string
	Verdict  Verdict
	// Reason is one line for a skip or a broken run, the whole account of a failure, and for a pass a line for each note
	// (Row.Choice, World.Note).
	Reason string
	// Missing are the features whose lack made it a skip.
	Missing []Feature
	// Took is the time from the scenario's start to its verdict, without waits for other scenarios.
	Took time.Duration
	// Files are what a failure left behind, relative to the report's folder.
	Files []string
	// Probed lists what was sent and its outcomes, in the order of the steps.
	Probed []Probed
}

// Probed is a row in one IP family after it was judged, in words.
type Probed struct {
	// Step is the name of the step that the row belongs to. It is empty where a scenario has one step without a name.
	Step string `json:"step,omitempty"`
	// Probe is what was sent, Want what had to come of it and Got what did.
	Probe string `json:"probe"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
	// Path is the way of the first packet, or of the first one that was not answered as wanted.
	Path []Hop `json:"path"`
}

// Hop is a host on the way of a packet.
type Hop struct {
	Host string `json:"host"`
	// Node is the node that a pod is on, empty for other hosts.
	Node string `json:"node,omitempty"`
}
