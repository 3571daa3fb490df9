// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// specReport is the part that is read of a types.SpecReport of Ginkgo, in its JSON form.
type specReport struct {
	ContainerHierarchyTexts     []string
	ContainerHierarchyLocations []location
	ContainerHierarchyLabels    [][]string
	LeafNodeType                string
	LeafNodeLocation            location
	LeafNodeLabels              []string
	LeafNodeText                string
	State                       state
	RunTime                     time.Duration
	Failure                     failure
	CapturedGinkgoWriterOutput  string
	CapturedStdOutErr           string
	SpecEvents                  []specEvent
}

type location struct {
	FileName   string
	LineNumber int
}

func (l location) String() string { return fmt.Sprintf("%s:%d", l.FileName, l.LineNumber) }

type failure struct {
	Message          string
	Location         location
	ForwardedPanic   string
	TimelineLocation timelineLocation
}

// timelineLocation tells what came before what in a spec.
type timelineLocation struct{ Order int }

type specEvent struct {
	SpecEventType    string
	CodeLocation     location
	Message          string
	TimelineLocation timelineLocation
}

// state is that of a spec at its end.
type state string

// The states that are told apart. All others are failures.
const (
	passed  state = "passed"
	skipped state = "skipped"
	pending state = "pending"
)

// specNode is the type of the node of a spec. Reports of other nodes are about the suite.
const specNode = "It"

// text returns the name of the spec as Ginkgo writes it.
func (r specReport) text() string {
	return strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
}

// preparation is the file whose steps come before those of each spec.
const preparation = "test/e2e/framework/framework.go"

// step returns the last step that the spec announced before its failure, or "" if it had announced none.
func (r specReport) step() string {
	last := specEvent{}
	for _, e := range r.SpecEvents {
		own := !strings.HasSuffix(e.CodeLocation.FileName, preparation)
		if e.SpecEventType == "By" && own && e.TimelineLocation.Order <= r.Failure.TimelineLocation.Order {
			last = e
		}
	}
	return last.Message
}

// collecting matches the step with which the framework begins to describe the namespace of a failed spec.
var collecting = regexp.MustCompile(`^Collecting events from namespace "([^"]+)"`)

// namespace returns that of a failed spec, or "".
func (r specReport) namespace() string {
	for _, e := range r.SpecEvents {
		if found := collecting.FindStringSubmatch(e.Message); found != nil {
			return found[1]
		}
	}
	return ""
}

// reason describes a failure: the step, what was wrong, and where.
func (r specReport) reason() string {
	var b strings.Builder
	if step := r.step(); step != "" {
		fmt.Fprintf(&b, "step: %s\n", step)
	}
	switch r.State {
	case "failed":
	default: // timedout, panicked, interrupted, aborted
		fmt.Fprintf(&b, "%s: ", r.State)
	}
	fmt.Fprintf(&b, "%s\n", shortened(strings.TrimSpace(r.Failure.Message)))
	if p := r.Failure.ForwardedPanic; p != "" {
		fmt.Fprintf(&b, "%s\n", shortened(p))
	}
	fmt.Fprintf(&b, "at %s", shortPath(r.Failure.Location.String()))
	return b.String()
}

// mostLines is how many lines of a message are shown. The log has them all.
const mostLines = 25

func shortened(text string) string {
	lines := strings.Split(text, "\n")
	if more := len(lines) - mostLines; more > 0 {
		lines = append(lines[:mostLines], fmt.Sprintf("... %d more lines in the log", more))
	}
	return strings.Join(lines, "\n")
}

// shortPath returns a path inside the repository of Kubernetes.
func shortPath(path string) string {
	if i := strings.Index(path, "/test/"); i >= 0 {
		return path[i+1:]
	}
	return path
}

// log returns all that the spec has written.
func (r specReport) log() string {
	return r.CapturedGinkgoWriterOutput + r.CapturedStdOutErr
}
