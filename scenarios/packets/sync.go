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
			took := obeyed(ctx, w, 4)[1:]
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

// defaultPause is the least period of a proxier that ignores the setting: kube-proxy's default.
const defaultPause = time.Second

// shortPause is the pause that changes in a row disprove. It is shorter than the default, so that a pause of 0.7 s
// before each of them is noticed as well.
const shortPause = 875 * time.Millisecond

// inARow is the number of changes of which each comes when the one before it is obeyed.
const inARow = 10

// beforePause is how many changes a proxier may make before it pauses (see seldom).
const beforePause = 2

// brisk is how soon a change after a silence is obeyed where those in a row take less than a pause, although a sync may
// have to wait for the one before it.
const brisk = 400 * time.Millisecond

// atOnce makes changes in a row until so many of them are obeyed in so little time that no proxier with pauses could
// have done it. If none are, though changes after a silence are obeyed soon, the proxier pauses. If these take long as
// well, syncs are slow, because the machine is busy or a sync starts a hundred programs, and pauses make no difference.
func atOnce(id string, file bool) spec.Scenario {
	s := pausing(id, 0, file, spec.Step{
		Name: "changes in a row", Check: func(ctx context.Context, w spec.World) error {
			took := obeyed(ctx, w, inARow)
			if !tooFastForPauses(took) {
				silent := afterSilences(ctx, w)
				if silent[len(silent)/2] > brisk {
					return &spec.NotRunError{Reason: fmt.Sprintf(
						"this machine is too slow or too busy to notice pauses of %s: changes in a row are obeyed "+
							"after %s, those after silences after %s; run it alone", defaultPause, took, silent)}
				}
				if took = obeyed(ctx, w, inARow); !tooFastForPauses(took) {
					return fmt.Errorf("without a least period, changes in a row are obeyed after %s, "+
						"but after silences after %s, so the proxier pauses between changes", took, silent)
				}
			}
			w.Note(fmt.Sprintf("changes in a row are obeyed after %s", took))
			return nil
		},
	})
	s.Cluster.Quiet = true
	if file {
		s.Needs = append(s.Needs, spec.ConfigFile)
	}
	return s
}

// tooFastForPauses reports whether some successive changes take less time than as many would with pauses.
func tooFastForPauses(took []time.Duration) bool {
	var saved time.Duration // by the changes up to this one that save most
	for _, t := range took {
		if saved = max(saved, 0) + shortPause - t; saved > beforePause*shortPause {
			return true
		}
	}
	return false
}

// afterSilences makes changes before which nothing changes for a while, and returns how long they took, the shortest
// time first.
func afterSilences(ctx context.Context, w spec.World) []time.Duration {
	var took []time.Duration
	for range 3 {
		spec.TryDo(silence(ctx, 2*defaultPause))
		took = append(took, obeyed(ctx, w, 2)[0])
	}
	slices.Sort(took)
	return took
}

// silence returns after a time without changes.
func silence(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look is the time from one look at a Service to the next. If looks became rare, short syncs would seem as long as
// pauses.
const look = 20 * time.Millisecond

// obeyed makes n changes of the endpoints of Service web, and returns how long each took until c1 noticed it in all
// families. Each change comes at once when the one before it has been noticed.
func obeyed(ctx context.Context, w spec.World, n int) (took []time.Duration) {
	looks, stop := ticks(look)
	defer stop()
	for i := range n {
		began := time.Now()
		ready := i%2 == 1
		want := map[bool]traffic.Outcome{true: traffic.Reply, false: traffic.Refused}[ready]
		RunActions(ctx, w, Readiness("a2", ready))
		spec.TryDo(WithinOn(ctx, machine.Busy(Patience()), looks, func(ctx context.Context) error {
			for _, seen := range spec.Must(w.Observe(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)})) {
				if seen.Outcome != want {
					return fmt.Errorf("change %d: c1 -> web %s: %s, want %s", i+1, seen.Family, seen.Outcome, want)
				}
			}
			return nil
		}))
		took = append(took, time.Since(began).Round(time.Millisecond))
	}
	return took
}

// ticks sends an event again and again until it is stopped.
func ticks(every time.Duration) (events <-chan struct{}, stop func()) {
	sent, done := make(chan struct{}), make(chan struct{})
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			<-ticker.C
			select {
			case sent <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return sent, func() { close(done) }
}
