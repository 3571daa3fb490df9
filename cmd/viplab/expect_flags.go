// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// expectFlags select the known deviations.
type expectFlags struct {
	file, out string
	allowTodo bool
}

// noExpectations is the value of --expect that makes every failure count.
const noExpectations = "none"

// add adds the flags. The preset says what is expected without --expect.
func (f *expectFlags) add(flags *pflag.FlagSet, preset string) {
	flags.StringVar(&f.file, "expect", "", "file of known deviations of the program, or "+noExpectations+
		" (default: "+preset+")")
	flags.BoolVar(&f.allowTodo, "allow-todo", false, "accept entries of --expect whose issue and reason are still TODO")
	flags.StringVar(&f.out, "write-expectations", "",
		"write what fails into this file, for --expect; issue and reason are TODO, for you to fill in")
}

// programOf returns the name of a proxier's program, without the mode, and the Run that selects its expectations.
// version is that of a program of which viplab does not know it.
func programOf(p spec.Proxier, version string, cluster clusterFlags) (string, expect.Run) {
	run := expect.Run{
		Version: version,
		With:    map[string]string{"ip": cluster.ip, "pods": cluster.pods, "overlay": cluster.overlay},
	}
	mode, release, detect, ok := kubeproxy.Release(p)
	if !ok {
		return p.Name(), run
	}
	run.Mode, run.Version = string(mode), release
	for _, m := range kubeproxy.Modes {
		run.Modes = append(run.Modes, string(m))
	}
	run.With["detect-local-mode"] = string(detect)
	return "kube-proxy", run
}

// read returns the file of --expect, or nil if there is none.
func (f *expectFlags) read() (*expect.File, error) {
	if f.file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.file)
	if err != nil {
		return nil, err
	}
	if f.allowTodo {
		return expect.ParseDraft(f.file, data)
	}
	file, err := expect.Parse(f.file, data)
	if _, draft := expect.ParseDraft(f.file, data); err != nil && draft == nil {
		err = fmt.Errorf("%w\n--allow-todo accepts it for now", err)
	}
	return file, err
}

// versionUnknown is the version of programs of which nothing states it.
func versionUnknown(spec.Proxier) string { return "" }

// known returns the expectations for the proxiers of a run, by proxier name. Their scenarios are among ids,
// which is called only if there are any. Without --expect, they are those that preset returns for a program.
func (f *expectFlags) known(proxiers []spec.Proxier, version func(spec.Proxier) string, cluster clusterFlags,
	ids func() ([]string, error), preset func(program string) (*expect.File, error)) (map[string]*expect.Known, error) {
	if f.file == noExpectations {
		return nil, nil
	}
	given, err := f.read()
	if err != nil {
		return nil, inFlag("expect", err)
	}
	var names []string
	out, used := map[string]*expect.Known{}, false
	for _, p := range proxiers {
		name, run := programOf(p, version(p), cluster)
		names = append(names, name)
		file := given
		var err error
		switch {
		case given == nil:
			file, err = preset(name)
		case given.Proxier != name:
			file = nil
		}
		if err == nil && file != nil {
			used = true
			var all []string
			if all, err = ids(); err == nil {
				out[p.Name()], err = file.For(run, all)
			}
		}
		if err != nil {
			return nil, inFlag("expect", err)
		}
	}
	if given != nil && !used {
		return nil, fmt.Errorf("--expect: %s is about the proxier %s, and this run judges %s", f.file, given.Proxier,
			strings.Join(names, ", "))
	}
	return out, nil
}

// write writes the failures of a run as expectations.
func (f *expectFlags) write(programs []spec.Proxier, results []spec.Result, stdout io.Writer) error {
	if f.out == "" {
		return nil
	}
	var name string
	var entries []expect.Entry
	for _, p := range programs {
		program, run := programOf(p, "", clusterFlags{})
		if name != "" && name != program {
			return fmt.Errorf("--write-expectations: a file is about one program, and this run judged %s and %s",
				name, program)
		}
		name = program
		for _, r := range results {
			if r.Proxier == p.Name() && r.Verdict == spec.Fail {
				entries = addEntry(entries, foreseen(r), run.Mode)
			}
		}
	}
	data, err := expect.Encode(name, entries)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.out, data, 0o644); err != nil {
		return inFlag("write-expectations", err)
	}
	fmt.Fprintf(stdout, "expectations: %d in %s; give each an issue and a reason\n", len(entries), f.out)
	return nil
}

// addEntry adds an entry for a mode, or adds the mode to an equal entry.
func addEntry(entries []expect.Entry, e expect.Entry, mode string) []expect.Entry {
	if mode == "" {
		return append(entries, e)
	}
	for i, o := range entries {
		if o.Scenario == e.Scenario && o.Got == e.Got && slices.Equal(o.Rows, e.Rows) &&
			slices.Equal(o.Families, e.Families) {
			entries[i].Modes = append(entries[i].Modes, mode)
			return entries
		}
	}
	e.Modes = []string{mode}
	return append(entries, e)
}

// foreseen returns an entry that makes the result known: for the rows that fail, if no row with the same label holds in
// the same families, or else for the scenario as a whole.
func foreseen(r spec.Result) expect.Entry {
	e := expect.Entry{Scenario: r.Scenario.ID}
	var outcomes, families []string
	held := map[string][]string{} // labels, by family
	for _, p := range r.Probed {
		switch {
		case p.Holds:
			held[p.Family] = append(held[p.Family], p.Row)
		case p.Known == "":
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
