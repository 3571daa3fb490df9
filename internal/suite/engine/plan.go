// SPDX-License-Identifier: Apache-2.0

// Package engine runs scenarios on proxiers. It plans which cells of the matrix run and which are skipped, builds
// clusters, runs many scenarios concurrently in one cluster, judges them, and keeps the evidence of failures. It
// depends on no test framework; the suite and the command are its front ends.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// Options define a run: the scenarios, the proxiers and the kind of cluster.
type Options struct {
	// Proxiers are the columns of the matrix, and Scenarios its rows.
	Proxiers  []spec.Proxier
	Scenarios []spec.Scenario
	// Enforcer, if not nil, is placed on every node beside the proxier and enforces network policies there.
	Enforcer spec.Proxier
	// Focus limits the run to scenarios whose id it matches. Nil means all.
	Focus *regexp.Regexp
	// Skip returns why a scenario is not to run, or "" if it is. Nil skips none.
	Skip func(spec.Scenario) string
	// Stack, PodNetwork and Overlay apply to every cluster that is built.
	Stack      lab.Stack
	PodNetwork lab.PodNetwork
	Overlay    lab.Overlay
	// Shard and Shards limit the run to one of several parts of the scenarios, counted from 1. A shard may be empty.
	// Shards 0 means no sharding.
	Shard, Shards int
	// Parallel is how many scenarios run concurrently in one cluster. Zero means 24, 18 for a proxier that converges
	// within 0.3 s at first, or 8 on a slow machine.
	Parallel int
	// Times are how long scenarios took in an earlier run, by id. They balance the shards, each of which must have the
	// same times. Nil means that each shard gets every Shards-th scenario.
	Times map[string]time.Duration
	// TrySkipped runs scenarios even if the proxier lacks the features that they need.
	TrySkipped bool
	// KeepFailed leaves the objects and pods of failed scenarios in place until the run is closed.
	KeepFailed bool
	// Keep leaves the default cluster of each proxier in place until the run is closed, with the objects and pods of its
	// failed scenarios.
	Keep bool
	// ApplyLimit is the time within which a proxier must program a change before it counts as hung. Zero means two
	// minutes, or more on slow or busy machines.
	ApplyLimit time.Duration
	// FailFast is for runs that expect failures. The first outcome that a row does not want ends the row, and a probe
	// that needs an answer waits two seconds instead of five. It changes no verdict of a proxier that answers at once.
	FailFast bool
	// Out is the folder for the evidence of failures. Empty means that none is kept.
	Out string
	// Command returns the command line that judges a proxier with the enforcer, for the command that repeats a failed
	// scenario. Nil means "viplab conform" with --proxier, --enforcer and their names.
	Command func(spec.Proxier) string
	// Again returns the command that repeats a scenario on a proxier. Nil means Command with the scenario and the kind
	// of cluster.
	Again func(spec.Scenario, spec.Proxier) string
	// Expect are the known deviations of each proxier, by its name. A proxier without an entry has none.
	Expect map[string]*expect.Known
	// Listen, if not nil, is called for every cell that starts or ends, possibly from many goroutines concurrently.
	Listen func(Event)
}

// Event reports that a cell started (Result is nil) or ended.
type Event struct {
	Cell   *Cell
	Result *spec.Result
	// Ended is the number of cells that have ended, and Total that of all cells of the run.
	Ended, Total int
}

// Cell is one scenario on one proxier.
type Cell struct {
	Scenario spec.Scenario
	Proxier  spec.Proxier

	skip     string // why it does not run; empty if it does
	failFast bool
	out      string // the folder for the evidence of a failure; empty means none
	rerun    string // the command that runs it again
	traces   *traceBudget
	missing  []spec.Feature
	expected []expect.Entry
	done     chan struct{}
	result   spec.Result
}

// Wait waits for the cell to end and returns its result.
func (c *Cell) Wait(ctx context.Context) (spec.Result, error) {
	select {
	case <-c.done:
		return c.result, nil
	case <-ctx.Done():
		return spec.Result{}, fmt.Errorf("%s on %s: %w", c.Scenario.ID, c.Proxier.Name(), context.Cause(ctx))
	}
}

// Again returns the command that repeats the cell.
func (c *Cell) Again() string { return c.rerun }

func (c *Cell) finish(r spec.Result) {
	r.Scenario, r.Proxier = c.Scenario, c.Proxier.Name()
	c.result = r
	close(c.done)
}

// Select returns the scenarios that the options choose, in the order of reports. It omits scenarios that Skip skips or
// that such a cluster cannot run, and, if there are Proxiers, those that all of them skip for lack of features.
func Select(o Options) ([]spec.Scenario, error) {
	scenarios, err := o.selectScenarios()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(scenarios, func(s spec.Scenario) bool {
		runs := func(p spec.Proxier) bool {
			skip, _ := o.whySkip(s, p, features(o.programs(p)))
			return skip == ""
		}
		skipped := o.Skip != nil && o.Skip(s) != ""
		return skipped || o.clusterLacks(s) != "" || len(o.Proxiers) > 0 && !slices.ContainsFunc(o.Proxiers, runs)
	}), nil
}

// Plan lists the cells of a run, including the skipped ones. It decides each skip before anything is built. It returns
// an error for options that could never run, or whose run would prove nothing.
func Plan(ctx context.Context, o Options) ([]*Cell, error) {
	selected, err := o.selectScenarios()
	if err != nil {
		return nil, err
	}
	if err := o.checkPrograms(); err != nil {
		return nil, err
	}
	var cells []*Cell
	for _, p := range o.Proxiers {
		programs := o.programs(p)
		unusable, declared := cannotRun(ctx, programs, o.Stack.Families()), features(programs)
		traces := newTraceBudget(o.Out)
		for _, s := range selected {
			c := &Cell{
				Scenario: s, Proxier: p, failFast: o.FailFast, out: o.Out, rerun: o.rerunCommand(s, p),
				expected: o.Expect[p.Name()].Of(s.ID), traces: traces, done: make(chan struct{}),
			}
			c.admit(o, unusable, declared)
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// programs are those that share a node: the enforcer, if there is one, and the proxier.
func (o Options) programs(p spec.Proxier) []spec.Proxier {
	if o.Enforcer == nil {
		return []spec.Proxier{p}
	}
	return []spec.Proxier{o.Enforcer, p}
}

// features returns the features of the programs that share a node.
func features(programs []spec.Proxier) spec.FeatureSet {
	all := spec.Features()
	for _, p := range programs {
		maps.Copy(all, p.Features())
	}
	return all
}

// cannotRun returns why one of the programs cannot run here in clusters of the families: nil, a *spec.UnusableError, or
// another error if that is unknown.
func cannotRun(ctx context.Context, programs []spec.Proxier, families []lab.Family) error {
	for _, p := range programs {
		err := withoutPanic(func() error { return p.Usable(ctx, families...) })
		var cannot *spec.UnusableError
		switch {
		case errors.As(err, &cannot):
			return fmt.Errorf("%s cannot run here: %w", p.Name(), err)
		case err != nil:
			return fmt.Errorf("cannot tell whether %s can run here: %w", p.Name(), err)
		}
	}
	return nil
}

// rerunCommand returns the command that repeats one cell, alone, in a cluster of the same kind.
func (o Options) rerunCommand(s spec.Scenario, p spec.Proxier) string {
	if o.Again != nil {
		return o.Again(s, p)
	}
	command := "viplab conform --proxier " + p.Name()
	switch {
	case o.Command != nil:
		command = o.Command(p)
	case o.Enforcer != nil:
		command += " --enforcer " + o.Enforcer.Name()
	}
	return fmt.Sprintf("%s --focus '^%s$' --ip %s --pods %s --overlay %s", command, s.ID, o.Stack, o.PodNetwork,
		o.Overlay)
}

// Whole returns how many scenarios all shards of the run have together.
func Whole(o Options) (int, error) {
	o.Shards = 0
	all, err := o.selectScenarios()
	return len(all), err
}

// selectScenarios sorts the scenarios and keeps those that focus and shard choose.
func (o Options) selectScenarios() ([]spec.Scenario, error) {
	all, err := spec.Sort(o.Scenarios)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s spec.Scenario) bool { return o.Focus != nil && !o.Focus.MatchString(s.ID) })
	if len(all) == 0 {
		return nil, errors.New("no scenario matches: nothing would be proved (viplab conform --list shows their names)")
	}
	return o.shard(all), nil
}

// checkPrograms returns an error for a program whose name is no name, for a proxier that declares an unknown feature,
// because a misspelt feature would skip scenarios, and for an enforcer that enforces nothing.
func (o Options) checkPrograms() error {
	var errs []error
	if o.Enforcer != nil {
		errs = append(errs, checkName("enforcer", o.Enforcer.Name()))
		if !o.Enforcer.Features()[spec.NetworkPolicy] {
			errs = append(errs, fmt.Errorf("enforcer %s: does not declare %s", o.Enforcer.Name(), spec.NetworkPolicy))
		}
	}
	seen := map[string]bool{}
	for _, p := range o.Proxiers {
		name := p.Name()
		errs = append(errs, checkName("proxier", name))
		if seen[name] {
			errs = append(errs, fmt.Errorf("proxier %s: named twice", name))
		}
		seen[name] = true
		var declared spec.FeatureSet
		if err := withoutPanic(func() error { declared = p.Features(); return nil }); err != nil {
			errs = append(errs, fmt.Errorf("proxier %s: Features: %w", name, err))
		}
		for _, f := range declared.List() {
			if !f.Known() {
				errs = append(errs, fmt.Errorf("proxier %s: declares unknown feature %q; a feature of your own has a name "+
					"such as example.org/%s", name, f, f))
			}
		}
	}
	return errors.Join(errs...)
}

// namePattern is what spec.Proxier documents, and what folders of failures can be named after.
var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func checkName(role, name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%s %q: a name consists of lower case letters, digits and dashes", role, name)
}

// admit decides whether the cell runs. declared are the features of all programs on a node, and unusable is why they
// cannot run.
func (c *Cell) admit(o Options, unusable error, declared spec.FeatureSet) {
	var cannot *spec.UnusableError
	switch {
	case errors.As(unusable, &cannot):
		c.skip = unusable.Error()
	case unusable != nil:
		c.finish(spec.Result{Verdict: spec.Broken, Reason: unusable.Error()})
	default:
		c.skip, c.missing = o.whySkip(c.Scenario, c.Proxier, declared)
	}
}

// whySkip returns why the scenario does not run on the proxier, empty if it does, and the missing features.
func (o Options) whySkip(s spec.Scenario, p spec.Proxier, declared spec.FeatureSet) (string, []spec.Feature) {
	if o.Skip != nil {
		if reason := o.Skip(s); reason != "" {
			return reason, nil
		}
	}
	if lack := o.clusterLacks(s); lack != "" {
		return lack, nil
	}
	missing := declared.Missing(s.Needs)
	switch {
	case len(missing) == 0 || o.TrySkipped:
		return "", missing
	case o.Enforcer == nil && slices.Equal(missing, []spec.Feature{spec.NetworkPolicy}):
		return "no enforcer of network policies (--enforcer)", missing
	default:
		return fmt.Sprintf("%s: %s lacks %s", spec.CauseOf(missing), p.Name(), joinFeatures(missing)), missing
	}
}

// clusterLacks returns why a scenario cannot run in clusters of these options, empty if it can.
func (o Options) clusterLacks(s spec.Scenario) string {
	for _, f := range s.Families {
		if !slices.Contains(o.Stack.Families(), f) {
			return fmt.Sprintf("this cluster has no %s", f)
		}
	}
	if s.NeedsOverlay && o.Overlay == lab.Direct {
		return "the nodes of this cluster route pod traffic without a tunnel"
	}
	return ""
}

func joinFeatures(fs []spec.Feature) string {
	var names []string
	for _, f := range fs {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}
