// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// rowTrace is the trace of a probe of a row that has failed, which was sent again.
type rowTrace struct {
	of     *probed
	number int // in the folder of the failure, from 1; 0 if the row was left out
	probe  traffic.Probe
	seen   spec.Observation
	got    string   // what came of it
	wrong  []string // with it, as spec.Row.Judge says
	traced *trace.Traced
	fault  error // why there is no trace, or only a part of one
}

// file returns the name of a file in the folder of the failure.
func (t *rowTrace) file(suffix string) string { return fmt.Sprintf("trace-%d%s", t.number, suffix) }

// alone returns the row for one of its probes.
func (p *probed) alone() spec.Row {
	row := p.row
	row.Times, row.Even, row.Sticky = 1, false, false
	return row
}

// failsAlone reports whether a probe of the row has failed by itself, not only all of them together.
func (p *probed) failsAlone(facts spec.Facts) bool {
	row := p.alone()
	return slices.ContainsFunc(p.seen, func(o spec.Observation) bool {
		return len(row.Judge([]spec.Observation{o}, facts)) > 0
	})
}

// title says which probe was sent again, and what came of it.
func (t *rowTrace) title() string {
	title := t.of.row.Probe(t.of.family)
	switch {
	case t.got == "":
		return title + ": not sent again"
	case len(t.wrong) > 0:
		return title + ", sent again: " + t.got
	case t.of.row.Even || t.of.row.Sticky:
		return title + ", sent again: " + t.got + ", as it may alone: the row fails as a whole"
	case t.seen.Outcome == traffic.Reply:
		return title + ": the repeated probe was answered (" + t.got + "): the failure did not last"
	}
	return title + ": the repeated probe got " + t.got + ", as wanted: the failure did not last"
}

// print writes the trace as text.
func (t *rowTrace) print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", t.title())
	if t.fault != nil {
		fmt.Fprintf(w, "not complete: %v\n", t.fault)
	}
	if t.traced == nil {
		return nil
	}
	fmt.Fprintln(w)
	return t.traced.Print(w)
}

// encode writes the trace as "viplab trace -o json" does.
func (t *rowTrace) encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(t.traced)
}

// writeShort writes the end of the walk.
func (t *rowTrace) writeShort(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", t.file(".txt"), t.title())
	if t.traced != nil {
		for _, line := range t.traced.Short() {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
	if t.fault != nil {
		fmt.Fprintf(b, "    not complete: %v\n", t.fault)
	}
}

// printTraces writes the traces of rows in short, and how many rows have none.
func printTraces(b *strings.Builder, probes []*probed) {
	omitted := 0
	for _, p := range probes {
		t := p.trace
		switch {
		case t == nil:
			continue
		case t.number == 0:
			omitted++
			continue
		}
		t.writeShort(b)
	}
	if omitted > 0 {
		fmt.Fprintf(b, "%d failed rows are not traced: a run traces at most %d of a scenario and %d of a proxier\n", omitted,
			tracesOfScenario, tracesOfProxier)
	}
}
