// SPDX-License-Identifier: Apache-2.0

// Package engine runs scenarios on proxiers: it plans which cells of the matrix run and which are skipped, builds
// clusters, runs many scenarios in one cluster at once, judges them, and keeps what explains a failure. It knows no
// test framework; the suite and the command are its front ends.
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
	"github.com/viplab/viplab/suite/spec"
)

// Options say what to run and on what.
type Options struct {
	// Proxiers are the columns of the matrix, Scenarios its rows.
	Proxiers  []spec.Proxier
	Scenarios []spec.Scenario
	// Enforcer, if not nil, is placed on every node beside the proxier and enforces network policies there.
	Enforcer spec.Proxier
	// Focus limits the run to scenarios whose id it matches. Nil: all.
	Focus *regexp.Regexp
	// Stack, PodNetwork and Overlay are those of every cluster that is built.
	Stack      lab.Stack
	PodNetwork lab.PodNetwork
	Overlay    lab.Overlay
	// Shard and Shards limit the run to every Shards-th scenario, beginning with number Shard, counted from 1. Shards 0:
	// no sharding.
	Shard, Shards int
	// TrySkipped runs scenarios although the proxier does not declare what they need.
	TrySkipped bool
	// KeepFailed leaves the objects and pods of failed scenarios in place until the run is closed.
	KeepFailed bool
	// ApplyLimit is how long a node may take to obey a change before its proxier is given up. Zero: two minutes, more on
	// slow machines.
	ApplyLimit time.Duration
	// Hasty is for runs that expect failures: the first outcome that a row does not want ends it, and a probe whose answer
	// is wanted waits two seconds instead of five. It changes no verdict of a proxier that answers at once.
	Hasty bool
	// Out is the folder for what failures leave behind. Empty: nothing is kept.
	Out string
	// Flags are how "viplab conform" is told of a proxier and the enforcer, for the command that runs a scenario again.
	// Nil: --proxier and --enforcer with their names.
	Flags func(spec.Proxier) string
	// Listen is told of every cell that starts or ends. It may be called from many goroutines at once. Nil: nobody.
	Listen func(Event)
}

// Event is a cell that started (Result is nil) or ended.
type Event struct {
	Cell   *Cell
	Result *spec.Result
	// Ended and Total count the cells of the run.
	Ended, Total int
}

// Cell is one scenario on one proxier.
type Cell struct {
	Scenario spec.Scenario
	Proxier  spec.Proxier

	skip    string // why it is not run; empty if it is
	hasty   bool
	out     string // the folder for what a failure leaves behind; empty: nothing is kept
	again   string // the command that runs it again
	missing []spec.Feature
	done    chan struct{}
	result  spec.Result
}

// Wait returns the cell's result once it has one.
func (c *Cell) Wait(ctx context.Context) (spec.Result, error) {
	select {
	case <-c.done:
		return c.result, nil
	case <-ctx.Done():
		return spec.Result{}, fmt.Errorf("%s on %s: %w", c.Scenario.ID, c.Proxier.Name(), context.Cause(ctx))
	}
}

func (c *Cell) finish(r spec.Result) {
	r.Scenario, r.Proxier = c.Scenario, c.Proxier.Name()
	c.result = r
	close(c.done)
}

// Plan lists the cells of a run, those to be skipped included, and decides each skip before anything is built. What
// could never run, and what would prove nothing, is an error.
func Plan(ctx context.Context, o Options) ([]*Cell, error) {
	scenarios, err := spec.Sort(o.Scenarios)
	if err != nil {
		return nil, err
	}
	selected := selectScenarios(scenarios, o)
	if len(selected) == 0 {
		return nil, errors.New("no scenario matches: nothing would be proved (viplab conform --list shows their names)")
	}
	if err := o.checkFeatures(); err != nil {
		return nil, err
	}
	var cells []*Cell
	for _, p := range o.Proxiers {
		programs := o.beside(p)
		unusable := cannotRun(ctx, programs)
		for _, s := range selected {
			c := &Cell{Scenario: s, Proxier: p, hasty: o.Hasty, out: o.Out, again: o.again(s, p), done: make(chan struct{})}
			c.admit(o, unusable, features(programs))
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// beside are the programs that share a node: the enforcer, if there is one, and the proxier.
func (o Options) beside(p spec.Proxier) []spec.Proxier {
	if o.Enforcer == nil {
		return []spec.Proxier{p}
	}
	return []spec.Proxier{o.Enforcer, p}
}

// features are what programs that share a node declare together.
func features(programs []spec.Proxier) spec.FeatureSet {
	all := spec.Features()
	for _, p := range programs {
		maps.Copy(all, p.Features())
	}
	return all
}

// cannotRun is why one of the programs cannot run here: nil, a *spec.UnusableError, or another error where that is not
// known.
func cannotRun(ctx context.Context, programs []spec.Proxier) error {
	for _, p := range programs {
		err := p.Usable(ctx)
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

// again is the command that runs one cell again, alone, in a cluster of the same kind.
func (o Options) again(s spec.Scenario, p spec.Proxier) string {
	flags := "--proxier " + p.Name()
	switch {
	case o.Flags != nil:
		flags = o.Flags(p)
	case o.Enforcer != nil:
		flags += " --enforcer " + o.Enforcer.Name()
	}
	return fmt.Sprintf("viplab conform %s --focus '^%s$' --ip %s --pods %s --overlay %s", flags, s.ID, o.Stack,
		o.PodNetwork, o.Overlay)
}

func selectScenarios(all []spec.Scenario, o Options) []spec.Scenario {
	var out []spec.Scenario
	n := 0
	for _, s := range all {
		if o.Focus != nil && !o.Focus.MatchString(s.ID) {
			continue
		}
		if n++; o.Shards > 0 && (n-1)%o.Shards != o.Shard-1 {
			continue
		}
		out = append(out, s)
	}
	return out
}

// checkFeatures refuses a proxier that declares what no scenario could ever ask for, most likely a typing error that
// would turn tests off, and an enforcer that enforces nothing.
func (o Options) checkFeatures() error {
	known := spec.Features(spec.AllFeatures()...)
	var errs []error
	seen := map[string]bool{}
	if o.Enforcer != nil && !o.Enforcer.Features()[spec.NetworkPolicy] {
		errs = append(errs, fmt.Errorf("enforcer %s: does not declare %s", o.Enforcer.Name(), spec.NetworkPolicy))
	}
	for _, p := range o.Proxiers {
		if seen[p.Name()] {
			errs = append(errs, fmt.Errorf("proxier %s: named twice", p.Name()))
		}
		seen[p.Name()] = true
		for _, f := range p.Features().List() {
			if !known[f] {
				errs = append(errs, fmt.Errorf("proxier %s: declares unknown feature %q", p.Name(), f))
			}
		}
	}
	return errors.Join(errs...)
}

// admit decides whether the cell is run, on programs of which one may be unusable and which declare features together.
func (c *Cell) admit(o Options, unusable error, declared spec.FeatureSet) {
	var cannot *spec.UnusableError
	switch {
	case errors.As(unusable, &cannot):
		c.skip = unusable.Error()
		return
	case unusable != nil:
		c.finish(spec.Result{Verdict: spec.Broken, Reason: unusable.Error()})
		return
	case lacks(o.Stack, c.Scenario.Families) != 0:
		c.skip = fmt.Sprintf("this cluster has no %s", lacks(o.Stack, c.Scenario.Families))
		return
	case c.Scenario.NeedsOverlay && o.Overlay == lab.Direct:
		c.skip = "the nodes of this cluster route pod traffic without a tunnel"
		return
	}
	c.missing = declared.Missing(c.Scenario.Needs)
	switch {
	case len(c.missing) == 0 || o.TrySkipped:
	case o.Enforcer == nil && slices.Equal(c.missing, []spec.Feature{spec.NetworkPolicy}):
		c.skip = "no enforcer of network policies (--enforcer)"
	default:
		c.skip = fmt.Sprintf("%s does not declare %s", c.Proxier.Name(), joinFeatures(c.missing))
	}
}

// lacks is the first of the families that the cluster does not have, zero if it has all of them.
func lacks(stack lab.Stack, families []lab.Family) lab.Family {
	for _, f := range families {
		if !slices.Contains(stack.Families(), f) {
			return f
		}
	}
	return 0
}

func joinFeatures(fs []spec.Feature) string {
	var names []string
	for _, f := range fs {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}
