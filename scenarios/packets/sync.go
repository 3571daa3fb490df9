// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// pausing returns a scenario with a least time between two changes of the rules on n1. The default of kube-proxy is a
// second.
func pausing(id string, pause time.Duration, file bool, steps ...spec.Step) spec.Scenario {
	return spec.Scenario{
		ID: id, Cluster: &spec.ClusterConfig{Nodes: []string{"n1"},
			Proxy: spec.ProxyConfig{MinSyncPeriod: &pause, ConfigFile: file}},
		Needs: []spec.Feature{spec.ClusterIP, spec.MinSyncPeriod},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: append([]spec.Step{{Name: "before", Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
		}}}, steps...),
	}
}

// seldom makes four changes, each once the one before it is obeyed. A proxier may make two of them in one period: until
// v1.33, kube-proxy counted periods for each two syncs.
func seldom() spec.Scenario {
	const pause = 3 * time.Second
	return pausing("sync-seldom", pause, false, spec.Step{
		Name: "four changes", Check: func(ctx context.Context, w spec.World) error {
			took := spec.Try(obeyed(ctx, w, 4))[1:]
			var all time.Duration
			for _, t := range took {
				all += t
			}
			if all < 2*pause*9/10 {
				return fmt.Errorf("four changes of one Service are obeyed at 0 s, and %s after one another; "+
					"the least period is %s", took, pause)
			}
			w.Note(fmt.Sprintf("one change a period of %s: after %s", pause, took))
			return nil
		},
	})
}

// soon is less than the default pause of a second, and more than what a sync takes where programs start as usual.
// (proxiers/exec takes the setting on no other machine.)
const soon = 700 * time.Millisecond

// atOnce makes changes one after another. On a busy machine some take longer. With a pause of a second, each takes that
// long, but for one that follows a sync which took long itself: a proxier counts the pause from the start of a sync.
func atOnce(id string, file bool) spec.Scenario {
	s := pausing(id, 0, file, spec.Step{
		Name: "nine changes", Check: func(ctx context.Context, w spec.World) error {
			took := spec.Try(obeyed(ctx, w, 9))
			slices.Sort(took)
			if took[2] > soon {
				return fmt.Errorf("without a least period, changes of one Service are obeyed after %s; "+
					"want three within %s", took, soon)
			}
			w.Note(fmt.Sprintf("changes are obeyed within %s", took[2]))
			return nil
		},
	})
	s.Cluster.Quiet = true
	if file {
		s.Needs = append(s.Needs, spec.ConfigFile)
	}
	return s
}

// obeyed makes n changes of the endpoints of Service web, and returns how long each took until c1 noticed it in all
// families. Each change comes at once when the one before it has been noticed.
func obeyed(ctx context.Context, w spec.World, n int) ([]time.Duration, error) {
	var took []time.Duration
	for i := range n {
		ready := i%2 == 1
		want := map[bool]traffic.Outcome{true: traffic.Reply, false: traffic.Refused}[ready]
		RunActions(ctx, w, Readiness("a2", ready))
		began := time.Now()
		err := Within(ctx, machine.Busy(Patience()), func(ctx context.Context) error {
			for _, seen := range spec.Must(w.Observe(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)})) {
				if seen.Outcome != want {
					return fmt.Errorf("change %d: c1 -> web %s: %s, want %s", i+1, seen.Family, seen.Outcome, want)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Round(time.Millisecond))
	}
	return took, nil
}
