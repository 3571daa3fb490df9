// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// write writes the failures of a run as expectations, after those of --expect that are still true.
func (f *expectFlags) write(programs []spec.Proxier, results []spec.Result, stdout io.Writer) error {
	if f.out == "" {
		return nil
	}
	var file expect.File
	if f.file != noExpectations {
		given, err := f.read()
		if err != nil {
			return inFlag("expect", err)
		}
		if given != nil {
			file = *given
		}
	}
	for _, p := range programs {
		file.Proxier = programName(p)
		for _, r := range results {
			if r.Proxier == p.Name() && r.Verdict == spec.Fail {
				file.Expect = withFailure(file.Expect, r, f.runs[p.Name()])
			}
		}
	}
	data, err := expect.Encode(file.Proxier, file.Expect)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.out, data, 0o644); err != nil {
		return inFlag("write-expectations", err)
	}
	fmt.Fprintf(stdout, "expectations: %d in %s; give each an issue and a reason\n", len(file.Expect), f.out)
	return nil
}

// withFailure returns the entries with one that makes a failed result of a run known. The entry is about what no other
// one explains. If entries that apply to the run were wrong, or one is about the whole scenario, the new entry takes
// their place. Entries for other runs stay as they are.
func withFailure(entries []expect.Entry, r spec.Result, run expect.Run) []expect.Entry {
	about := func(e expect.Entry) bool { return e.Scenario == r.Scenario.ID && e.Applies(run) }
	wrong := strings.HasPrefix(r.Reason, expected.Surprise)
	e := foreseen(r, wrong)
	if r.Scenario.ID != expect.Generated && slices.ContainsFunc(entries, func(old expect.Entry) bool {
		return about(old) && (wrong || old.ForWholeScenario() || e.ForWholeScenario())
	}) {
		e = foreseen(r, true)
		entries = without(entries, about, run.Mode)
	}
	if wrong && len(e.Rows) == 0 && !slices.ContainsFunc(r.Probed, func(p spec.Probed) bool { return !p.Holds }) {
		return entries // nothing has failed
	}
	return addEntry(entries, e, run.Mode)
}

// without returns the entries without those that chosen accepts. Those of several modes lose one of them.
func without(entries []expect.Entry, chosen func(expect.Entry) bool, mode string) []expect.Entry {
	var out []expect.Entry
	for _, e := range entries {
		if chosen(e) {
			modes := slices.DeleteFunc(slices.Clone(e.Modes), func(m string) bool { return m == mode })
			if len(modes) == 0 {
				continue
			}
			e.Modes = modes
		}
		out = append(out, e)
	}
	return out
}

// addEntry adds an entry for a mode, or adds the mode to an equal entry.
func addEntry(entries []expect.Entry, e expect.Entry, mode string) []expect.Entry {
	if mode == "" {
		return append(entries, e)
	}
	for i, o := range entries {
		if o.Scenario == e.Scenario && o.Got == e.Got && o.Issue == "" && slices.Equal(o.Rows, e.Rows) &&
			slices.Equal(o.Families, e.Families) {
			entries[i].Modes = append(entries[i].Modes, mode)
			return entries
		}
	}
	e.Modes = []string{mode}
	return append(entries, e)
}

// foreseen returns an entry that makes the result known: for the rows that fail, if no row with the same label holds in
// the same families, or else for the scenario as a whole. Rows that are known already count only with all.
func foreseen(r spec.Result, all bool) expect.Entry {
	e := expect.Entry{Scenario: r.Scenario.ID}
	if r.NotReady {
		e.Got = expect.NotReady
		return e
	}
	var outcomes, families []string
	held := map[string][]string{} // labels, by family
	for _, p := range r.Probed {
		switch {
		case p.Holds:
			held[p.Family] = append(held[p.Family], p.Row)
		case all || p.Known == "":
			e.Rows, outcomes = append(e.Rows, p.Row), append(outcomes, p.Outcomes...)
			families = append(families, p.Family)
		}
	}
	unique := func(s []string) []string {
		slices.Sort(s)
		return slices.Compact(s)
	}
	e.Rows, outcomes, families = unique(e.Rows), unique(outcomes), unique(families)
	for _, family := range families {
		if slices.ContainsFunc(e.Rows, func(row string) bool { return slices.Contains(held[family], row) }) {
			e.Rows = nil
		}
	}
	if len(e.Rows) > 0 && len(families) == 1 {
		e.Families = []int{map[string]int{"v4": 4, "v6": 6}[families[0]]}
	}
	if len(outcomes) == 1 {
		e.Got = outcomes[0]
	}
	return e
}
