// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// latencies are the scenarios of how long it takes until packets obey.
func latencies() []spec.Scenario {
	return []spec.Scenario{{
		ID: "np-programming-latency", Cluster: &spec.ClusterConfig{},
		Needs: enforced,
		Given: four(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			if err := w.Settle(ctx); err != nil {
				return err
			}
			for _, kind := range []struct {
				what   string
				rounds []round
			}{
				{"a policy that denies", []round{{Apply(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))),
					shut("a1", "b2")}, {Delete("NetworkPolicy", "p"), open("a1", "b2")}}},
				{"a label that allows", []round{
					{Apply(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))), shut("a1", "b2")},
					{label("b2", "new", "1"), open("a1", "b2")}, {label("b2", "new", ""), shut("a1", "b2")},
				}},
				{"a new pod that is allowed", []round{{fresh("d2"), open("a1", "d2")}, {Delete("Pod", "d2"), open("b1", "b2")}}},
			} {
				took, err := latency(ctx, w, kind.rounds)
				if err != nil {
					return fmt.Errorf("%s: %w", kind.what, err)
				}
				w.Note(fmt.Sprintf("%s is obeyed within %v, at most %v (%d changes)", kind.what,
					took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took)))
			}
			return nil
		}}},
	}}
}

// round is a change, and rows that hold once it is obeyed.
type round struct {
	change spec.Action
	rows   []spec.Row
}

// fresh is an action that starts a pod that rules for new ones allow, and returns when it has its address.
func fresh(name string) spec.Action {
	return spec.Action{Name: "start " + name, Run: func(ctx context.Context, w spec.World) error {
		if err := w.Apply(echo(name, "n2", Labelled("new", "1"))); err != nil {
			return err
		}
		return Soon(ctx, func(context.Context) error {
			_, err := w.Host(name)
			return err
		})
	}}
}

// latency goes through the rounds ten times, and returns how long they took, the shortest first.
func latency(ctx context.Context, w spec.World, rounds []round) ([]time.Duration, error) {
	var took []time.Duration
	for range 10 {
		for _, r := range rounds {
			if err := r.change.Run(ctx, w); err != nil {
				return nil, spec.HarnessErrorf("%s: %w", r.change.Name, err)
			}
			began := time.Now()
			if err := Soon(ctx, func(ctx context.Context) error { return asWanted(ctx, w, r.rows) }); err != nil {
				return nil, err
			}
			took = append(took, time.Since(began))
			if err := w.Settle(ctx); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(took)
	return took, nil
}
