// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/shrink"
	"github.com/viplab/viplab/suite/spec"
)

// atOnce is the number of smaller cases that are played side by side, and copies that of the times that a case is
// played to see whether it fails again.
const atOnce, copies = 24, 8

// smallerLimit is how long a proxier may take to program a smaller case, on a machine of usual speed. Those that are
// correct take much less, and a smaller case that hangs would use up the time for all others.
const smallerLimit = 20 * time.Second

// judge plays cases to see whether they fail as another one did.
type judge struct {
	kinds []string // of disagreements
	// play plays cases side by side and returns their results in the same order.
	play func(context.Context, []Case) ([]spec.Result, error)
	// played is the number of cases that were played.
	played int
}

func (o Options) judgeOf(r spec.Result) *judge {
	j := &judge{kinds: kindsOf(r)}
	j.play = func(ctx context.Context, cases []Case) ([]spec.Result, error) {
		return playAgain(ctx, o.Engine, cases, slices.Contains(j.kinds, notReady))
	}
	return j
}

// playAgain plays cases side by side. alone gives each case a cluster of its own: what keeps a proxier from converging
// would do so for all.
func playAgain(ctx context.Context, o engine.Options, cases []Case, alone bool) ([]spec.Result, error) {
	o.FailFast, o.Out, o.ApplyLimit = true, "", machine.Limit(smallerLimit)
	o.Scenarios = nil
	for i, c := range cases {
		s := c.Scenario(Playing{Slot: i, Suffix: fmt.Sprintf("-s%d", i), Everything: true})
		if alone {
			s.Cluster = &spec.ClusterConfig{}
		}
		o.Scenarios = append(o.Scenarios, s)
	}
	byID, _, err := playAll(ctx, o)
	var results []spec.Result
	for _, s := range o.Scenarios {
		results = append(results, byID[s.ID])
	}
	return results, err
}

// failing plays cases side by side, and returns the indexes of those that fail in one of the ways, with all results.
func (j *judge) failing(ctx context.Context, cases []Case) (indexes []int, results []spec.Result, err error) {
	if len(cases) == 0 {
		return nil, nil, ctx.Err()
	}
	results, err = j.play(ctx, cases)
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	j.played += len(cases)
	for i, r := range results {
		if slices.ContainsFunc(kindsOf(r), func(k string) bool { return slices.Contains(j.kinds, k) }) {
			indexes = append(indexes, i)
		}
	}
	return indexes, results, nil
}

// again plays copies of the case side by side, and counts those that fail as it did.
func (f *Failure) again(ctx context.Context, j *judge) error {
	indexes, results, err := j.failing(ctx, slices.Repeat([]Case{f.Case}, copies))
	if err != nil {
		return err
	}
	f.Again, f.Of = len(indexes), copies
	if len(indexes) > 0 {
		f.Result = results[indexes[0]]
	}
	return nil
}

// shrink makes the failing case as small as it gets: without any one of its objects, list elements or fields, it would
// not fail in the same way. It calls keep with each smaller case. It returns no error if its time is over.
func (f *Failure) shrink(ctx context.Context, j *judge, limit time.Duration, keep func(*Failure) error) error {
	original := *f
	limited, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		limited, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	if err := f.reduce(limited, j, keep); err != nil && (limited.Err() == nil || ctx.Err() != nil) {
		return err
	}
	if err := f.again(ctx, j); err != nil {
		return err
	}
	if f.Again == 0 { // what is left of it fails by chance
		*f = original
	}
	f.Tries = j.played
	return keep(f)
}

// reduce leaves out parts of the case until its context ends.
func (f *Failure) reduce(ctx context.Context, j *judge, keep func(*Failure) error) error {
	c := f.Case
	c.States = slices.Clone(c.States)
	for i := range c.States {
		c.States[i].Change, c.States[i].Kinds = "", nil
	}
	tree, err := shrink.Tree(c.States)
	if err != nil {
		return err
	}
	next := *f // the first case that failed of those played last
	var kept error
	_, err = shrink.Smallest(tree, atOnce, func(smaller []any) ([]int, error) {
		cases, numbers := valid(c.ID, smaller)
		indexes, results, err := j.failing(ctx, cases)
		if err = errors.Join(kept, err); err != nil || len(indexes) == 0 {
			return nil, err
		}
		next.Case, next.Result = cases[indexes[0]], results[indexes[0]]
		for i := range indexes {
			indexes[i] = numbers[indexes[i]]
		}
		return indexes, nil
	}, func(any) {
		f.Case, f.Result, f.Tries = next.Case, next.Result, j.played
		kept = keep(f)
	})
	return err
}

// valid returns the cases among the trees, and their numbers.
func valid(id string, trees []any) (cases []Case, numbers []int) {
	for i, t := range trees {
		states, err := shrink.Value[[]State](t)
		c := Case{ID: id, States: states}
		if err == nil && c.valid() {
			cases, numbers = append(cases, c), append(numbers, i)
		}
	}
	return cases, numbers
}

// valid reports whether every object of a case has what every object needs, and whether the case has a Service.
func (c Case) valid() bool {
	services := false
	for _, s := range c.States {
		if s.Life != nil && (s.Life.event().begin == nil || s.Life.Node == "") {
			return false
		}
		services = services || len(s.Services) > 0
		for _, p := range s.Pods {
			if p.Name == "" || p.Kind == "" || p.APIVersion == "" || p.Spec.NodeName == "" || len(p.Spec.Containers) == 0 ||
				p.Spec.Containers[0].Name == "" || p.Spec.Containers[0].Image == "" {
				return false
			}
		}
		for _, svc := range s.Services {
			if svc.Name == "" || svc.Kind == "" || svc.APIVersion == "" {
				return false
			}
		}
		for _, e := range s.Slices {
			if e.Name == "" || e.Kind == "" || e.APIVersion == "" {
				return false
			}
		}
		for _, p := range s.Policies {
			if p.Name == "" || p.Kind == "" || p.APIVersion == "" {
				return false
			}
		}
	}
	return services
}
