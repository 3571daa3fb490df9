// SPDX-License-Identifier: Apache-2.0

// Package e2e runs Kubernetes' own end-to-end tests of networking in a lab, unmodified.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/suite/spec"
)

// sig begins the name of each spec that this package runs.
const sig = "[sig-network] "

// Spec is a test of Kubernetes.
type Spec struct {
	// Name is what Ginkgo calls it, without sig: "Services should serve a basic endpoint from pods [Conformance]".
	Name string
	// Source is the file and line in the repository of Kubernetes.
	Source string
}

// Conformance reports whether the spec is among those that every cluster has to pass.
func (s Spec) Conformance() bool { return strings.Contains(s.Name, "[Conformance]") }

// areaPattern matches the first word of a name, which the specs about one thing share, without "[Feature:".
var areaPattern = regexp.MustCompile(`^(?:\[\w+:)?([\w-]+)`)

// area returns what the spec is about, as the name says first: "services".
func (s Spec) area() string {
	if word := areaPattern.FindStringSubmatch(s.Name); word != nil {
		return strings.ToLower(word[1])
	}
	return "others"
}

// scenario returns the spec as a scenario of a report.
func (s Spec) scenario(version string) spec.Scenario {
	priority := spec.P1
	if s.Conformance() {
		priority = spec.P0
	}
	file, line, _ := strings.Cut(s.Source, ":")
	return spec.Scenario{
		ID: s.Name, Group: s.area(), Priority: priority, Why: s.Source,
		Source: fmt.Sprintf("https://github.com/kubernetes/kubernetes/blob/%s/%s#L%s", version, file, line),
	}
}

// Suite is the tests of a release as programs.
type Suite struct{ Version string }

// tests is the program of the tests.
func (s Suite) tests() release.Command {
	return release.Command{Name: "e2e.test", Version: s.Version, Package: "k8s.io/kubernetes/test/e2e", Tests: true}
}

// kubectl is the program that the tests call.
func (s Suite) kubectl() release.Command { return release.Command{Name: "kubectl", Version: s.Version} }

// Build builds what is not there: the tests, kubectl, and further commands that pods run.
func (s Suite) Build(ctx context.Context, progress io.Writer, more ...release.Command) error {
	for _, c := range append([]release.Command{s.tests(), s.kubectl()}, more...) {
		if err := c.Build(ctx, progress); err != nil {
			return err
		}
	}
	return nil
}

// Specs returns all specs of networking, in the order of their names. It asks the program once and keeps the answer
// beside it.
func (s Suite) Specs(ctx context.Context) ([]Spec, error) {
	program, err := s.tests().Path()
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(filepath.Dir(program), "specs.json")
	data, err := os.ReadFile(kept)
	if err == nil {
		var specs []Spec
		if err := json.Unmarshal(data, &specs); err != nil {
			return nil, fmt.Errorf("%s: %w: remove the file", kept, err)
		}
		return specs, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	specs, err := list(ctx, program)
	if err != nil {
		return nil, fmt.Errorf("list the specs: %w", err)
	}
	return specs, write(kept, specs)
}

// write writes a file at once and whole.
func write(path string, specs []Spec) error {
	data, err := json.MarshalIndent(specs, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "specs-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// list makes the program report on its specs without running them.
func list(ctx context.Context, program string) ([]Spec, error) {
	folder, err := os.MkdirTemp("", "viplab-e2e-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "report.json")
	out, err := exec.CommandContext(ctx, program, "--ginkgo.dry-run", "--ginkgo.json-report="+file, "--ginkgo.no-color",
		"--ginkgo.focus="+regexp.QuoteMeta(sig), "--provider=skeleton").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(out))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseList(data)
}

// parseList reads the JSON report of a dry run. Each name is there once.
func parseList(data []byte) ([]Spec, error) {
	var suites []struct{ SpecReports []specReport }
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, err
	}
	var specs []Spec
	for _, s := range suites {
		for _, r := range s.SpecReports {
			if name, ok := strings.CutPrefix(r.text(), sig); ok && r.LeafNodeType == specNode {
				specs = append(specs, Spec{Name: name, Source: shortPath(r.LeafNodeLocation.String())})
			}
		}
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	for i := range specs[:max(len(specs), 1)-1] {
		if specs[i].Name == specs[i+1].Name {
			return nil, fmt.Errorf("two specs are called %q", specs[i].Name)
		}
	}
	return specs, nil
}

// tail returns the end of what a program has printed.
func tail(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-mostLines):], "\n")
}
