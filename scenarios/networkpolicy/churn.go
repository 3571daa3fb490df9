// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// churn are the scenarios of many changes in a row, which are not waited for.
func churn() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-label-churn", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: churned(),
			Steps: []spec.Step{
				{
					Name:  "while labels change",
					Check: During(slices.Concat(open("a1", "b2"), shut("a1", "c2"), open("b1", "c2")), changeLabels),
				},
				{Name: "the last labels", Rows: lastRows()},
			},
		},
		{
			ID: "np-killed-midway", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: untouched(toldBy("p", "")),
			Steps: []spec.Step{{Check: During(untouchedRows, func(ctx context.Context, w spec.World, t spec.Traffic) {
				for i := range 6 {
					killMidway(ctx, w, t, i)
				}
			})}},
		},
	}
}

// killMidway rewrites a policy with a thousand blocks, and kills the enforcer of its node: at once, or when the first
// rule has changed.
func killMidway(ctx context.Context, w spec.World, t spec.Traffic, round int) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := spec.Must(observe.RulesetChanges(watching, w.Lab().Node("n1").NS))
	spec.MustDo(w.Apply(manyBlocks(1000 * round)))
	if round%2 == 1 {
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			_ = w.Settle(watching) // the next one tells what is wrong
		}()
		select {
		case <-changes:
		case <-settled: // it writes no rules of nftables, or is through already
		}
		stop()
		<-settled
	}
	restart(ctx, w, t, w.EnforcerControl("n1"))
}

// The pods whose labels change, and how often they do in all.
const (
	churners = 6
	flippers = 1000
)

func churner(i int) string { return fmt.Sprintf("p%d", i) }

// churned are four pods, of which a1 lets b2 in, and others, of which those that are red let in those that are red.
func churned() []store.Object {
	all := four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))))),
		policy("red", labels("colour", "red"), ingress(allow(pods(labels("colour", "red"))))))
	for i := range churners {
		all = append(all, echo(churner(i), fmt.Sprintf("n%d", i%3+1)))
	}
	return all
}

// drawn are the changes, the same ones each time.
func drawn() (who []int, red []bool) {
	random := rand.New(rand.NewPCG(2, 3))
	for range flippers {
		who, red = append(who, random.IntN(churners)), append(red, random.IntN(2) == 1)
	}
	return who, red
}

// lastRows are rows of every pair, as the last labels say.
func lastRows() []spec.Row {
	isRed := map[int]bool{}
	who, red := drawn()
	for i := range who {
		isRed[who[i]] = red[i]
	}
	var rows []spec.Row
	for to := range churners {
		for from := range churners {
			switch {
			case from == to:
			case isRed[to] && !isRed[from]:
				rows = append(rows, shut(churner(to), churner(from))...)
			default:
				rows = append(rows, open(churner(to), churner(from))...)
			}
		}
	}
	return rows
}

// changeLabels makes the changes, a hundred at a time, and notes how long after the last one they take effect.
func changeLabels(ctx context.Context, w spec.World, t spec.Traffic) {
	began := time.Now()
	who, red := drawn()
	for i := range who {
		colour := map[bool]string{true: "red"}[red[i]]
		RunActions(ctx, w, label(churner(who[i]), "colour", colour))
		if i%100 == 99 {
			spec.TryDo(t.Rounds(ctx, 1))
		}
	}
	last := time.Now()
	spec.TryDo(errors.Join(w.Settle(ctx), t.Rounds(ctx, 1)))
	w.Note(fmt.Sprintf("%.0f changes of labels a second, obeyed within %v after the last one",
		flippers/last.Sub(began).Seconds(), time.Since(last).Round(time.Millisecond)))
}
