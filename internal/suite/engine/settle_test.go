// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/proxiers/none"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// A scenario waits for its own changes and for nodes, but not for the changes of other scenarios.
func TestAScenarioWaitsForItsOwnChanges(t *testing.T) {
	for _, change := range []spec.Action{Apply(Service("mine")), Zone("n1", "west")} {
		var held atomic.Bool
		release := make(chan struct{})
		p := bad{Proxier: none.New(), name: "held", apply: func(ctx context.Context, _ int64) error {
			if held.Load() {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return nil
		}}
		s := simple("waits-for-itself")
		s.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			held.Store(true)
			other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
			theirs := Service("theirs")
			theirs.Namespace = other.Name
			if err := errors.Join(w.Store().Apply(other, theirs), w.Settle(ctx), change.Run(ctx, w)); err != nil {
				return err
			}
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if err := w.Settle(brief); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the scenario does not wait until nodes obey: %v", change.Name, err)
			}
			close(release)
			return w.Settle(ctx)
		}}}
		if r := run(t, engine.Options{Proxiers: []spec.Proxier{p},
			Scenarios: []spec.Scenario{s}})[s.ID]; r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s), want pass", change.Name, r.Verdict, r.Reason)
		}
	}
}
