package spec

import "time"

// Verdict is what came of a scenario on a proxier.
type Verdict string

// The verdicts. A skip is decided before anything is built; broken means that the harness, not the proxier, is at fault.
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
	// Reason is one line for a pass that has something to say, a skip or a broken run; the whole account of a failure.
	Reason string
	// Missing are the features whose lack made it a skip.
	Missing []Feature
	// Took is the time from the scenario's start to its verdict, waiting for nobody else.
	Took time.Duration
	// Files are what a failure left behind, relative to the report's folder.
	Files []string
}
