// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// Options say what RunConformance judges, and how. Only Proxiers is required. The zero value of every other field means
// what "viplab conform" does without flags: all scenarios of the catalogue, in dual-stack clusters with bridged pods.
type Options struct {
	// Proxiers are the implementations to judge, or the modes of one. Their names differ.
	Proxiers []spec.Proxier
	// Version is the release of the proxiers, as in "v1.4.0". It is part of the report, and selects the entries of
	// Expect. Empty means unknown: entries for certain versions do not apply.
	Version string
	// Enforcer, if not nil, enforces network policies on every node, beside the proxier.
	Enforcer spec.Proxier

	// Scenarios replace those of the catalogue. Nil means all of the catalogue (scenarios.All).
	Scenarios []spec.Scenario
	// Own are further scenarios. A feature of your own has a name with a slash: "example.org/dsr".
	Own []spec.Scenario
	// Skip has scenarios that are not to run, by id, and the reason of each. An id without a scenario or without a
	// reason is an error.
	Skip map[string]string
	// Expect are known deviations. A scenario that fails as expected passes, and one that does not fail as expected fails.
	// Each file is about one of the proxiers, which it names.
	Expect []*expect.File

	// Families are the IP families of the clusters: lab.V4, lab.V6 or both. None means both.
	Families []lab.Family
	// PodNetwork is how the clusters wire pods. The zero value is lab.Bridge.
	PodNetwork lab.PodNetwork
	// Overlay is how the clusters carry pod traffic between nodes. The zero value is lab.Auto.
	Overlay lab.Overlay
	// TrySkipped also runs scenarios that need features which a proxier does not declare. One that passes fails its test:
	// the declaration is wrong.
	TrySkipped bool

	// Out is the folder for report.json, junit.xml, report.html and the evidence of failures. Empty means t.ArtifactDir(),
	// which "go test -artifacts" keeps.
	Out string
}

// engine returns the options of the engine for the test of a name. The error lists every mistake.
func (o Options) engine(test string) (engine.Options, error) {
	var errs []error
	if len(o.Proxiers) == 0 {
		errs = append(errs, errors.New("there is no proxier to judge"))
	}
	stack, err := lab.StackOf(o.Families...)
	errs = append(errs, err)
	all := o.Scenarios
	if all == nil {
		all, err = scenarios.All()
		errs = append(errs, err)
	}
	all = slices.Concat(all, o.Own)
	known, err := o.known(all, stack)
	errs = append(errs, err, o.checkSkip(all))
	return engine.Options{
		Proxiers: o.Proxiers, Enforcer: o.Enforcer, Scenarios: all, Stack: stack, PodNetwork: o.PodNetwork,
		Overlay: o.Overlay, TrySkipped: o.TrySkipped, Out: o.Out, Expect: known,
		Skip: func(s spec.Scenario) string { return o.Skip[s.ID] },
		Again: func(s spec.Scenario, p spec.Proxier) string {
			return "go test -run '" + o.pattern(test, s.ID, p.Name()) + "'"
		},
	}, errors.Join(errs...)
}

// checkSkip returns an error for each id that no scenario has, and for each without a reason.
func (o Options) checkSkip(all []spec.Scenario) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(o.Skip)) {
		if !slices.Contains(ids(all), id) {
			errs = append(errs, fmt.Errorf("skip: there is no scenario %q: remove the entry", id))
		}
		if o.Skip[id] == "" {
			errs = append(errs, fmt.Errorf("skip: %s has no reason", id))
		}
	}
	return errors.Join(errs...)
}

// known returns the known deviations, by proxier.
func (o Options) known(all []spec.Scenario, stack lab.Stack) (map[string]*expect.Known, error) {
	known := map[string]*expect.Known{}
	run := expect.Run{Version: o.Version, With: map[string]string{
		"ip": stack.String(), "pods": o.PodNetwork.String(), "overlay": o.Overlay.String(),
	}}
	var errs []error
	for _, f := range o.Expect {
		switch judged := slices.ContainsFunc(o.Proxiers, func(p spec.Proxier) bool { return p.Name() == f.Proxier }); {
		case !judged:
			errs = append(errs, fmt.Errorf("expect: a file is about the proxier %q, which is not judged", f.Proxier))
		case known[f.Proxier] != nil:
			errs = append(errs, fmt.Errorf("expect: two files are about the proxier %q", f.Proxier))
		default:
			k, err := f.For(run, ids(all))
			known[f.Proxier], errs = k, append(errs, err)
		}
	}
	return known, errors.Join(errs...)
}

func ids(all []spec.Scenario) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.ID)
	}
	return out
}

// pattern returns the value of -run that selects one subtest.
func (o Options) pattern(test, scenario, proxier string) string {
	path := append(strings.Split(test, "/"), strings.Split(o.subtest(scenario, proxier), "/")...)
	for i, name := range path {
		path[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(path, "/")
}

// subtest returns the name of the subtest of a cell.
func (o Options) subtest(scenario, proxier string) string {
	if len(o.Proxiers) > 1 {
		return proxier + "/" + scenario
	}
	return scenario
}

// plan plans the cells of a run.
func plan(ctx context.Context, o engine.Options) ([]*engine.Cell, error) {
	cells, err := engine.Plan(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return cells, nil
}
