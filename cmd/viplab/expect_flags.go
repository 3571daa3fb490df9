// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
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

	runs map[string]expect.Run // by proxier, once known has been called
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

// programName returns the name of a proxier's program, without the mode.
func programName(p spec.Proxier) string {
	if _, _, _, ok := kubeproxy.Release(p); ok {
		return "kube-proxy"
	}
	return p.Name()
}

// runOf returns the Run that selects the expectations of a proxier. version is that of a program of which viplab does
// not know it.
func runOf(p spec.Proxier, version string, cluster clusterFlags) expect.Run {
	run := expect.Run{
		Version: version,
		With:    map[string]string{"ip": cluster.ip, "pods": cluster.pods, "overlay": cluster.overlay},
	}
	mode, release, detect, ok := kubeproxy.Release(p)
	if !ok {
		return run
	}
	run.Mode, run.Version = string(mode), release
	for _, m := range kubeproxy.Modes {
		run.Modes = append(run.Modes, string(m))
	}
	run.With["detect-local-mode"] = string(detect)
	return run
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
// which is called only if there are any. Without --expect, they are those that preset returns for a program. The error
// also says why --write-expectations cannot write its file afterwards.
func (f *expectFlags) known(proxiers []spec.Proxier, version func(spec.Proxier) string, cluster clusterFlags,
	ids func() ([]string, error), preset func(p spec.Proxier, program string) (*expect.File, error),
) (map[string]*expect.Known, error) {
	if err := f.checkOut(proxiers); err != nil {
		return nil, err
	}
	f.runs = map[string]expect.Run{}
	for _, p := range proxiers {
		f.runs[p.Name()] = runOf(p, version(p), cluster)
	}
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
		name, run := programName(p), f.runs[p.Name()]
		names = append(names, name)
		file := given
		var err error
		switch {
		case given == nil:
			file, err = preset(p, name)
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

// nothingShipped returns no expectations.
func nothingShipped(spec.Proxier, string) (*expect.File, error) { return nil, nil }

// checkOut checks before a run that its failures can be written afterwards.
func (f *expectFlags) checkOut(programs []spec.Proxier) error {
	if f.out == "" {
		return nil
	}
	name := ""
	for _, p := range programs {
		program := programName(p)
		if name != "" && name != program {
			return fmt.Errorf("--write-expectations: a file is about one program, and this run judges %s and %s",
				name, program)
		}
		name = program
	}
	if _, err := os.ReadDir(f.out); err == nil {
		return fmt.Errorf("--write-expectations: %s is a folder", f.out)
	}
	_, err := os.ReadDir(filepath.Dir(f.out))
	return inFlag("write-expectations", err)
}

// quoted returns the flags that judge with the same expectations, quoted for a shell after a blank.
func (f *expectFlags) quoted() string {
	switch {
	case f.file == "":
		return ""
	case f.allowTodo:
		return " " + quoted([]string{"--expect", f.file, "--allow-todo"})
	}
	return " " + quoted([]string{"--expect", f.file})
}
