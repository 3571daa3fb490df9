// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
)

// TestNoGap: every connection that is made while the table is rewritten, as a whole or in part, is served.
func TestNoGap(t *testing.T) {
	w := proxiertest.NewWorld(t, New(), lab.Bridge)
	w.Apply(t, proxiertest.Service("web", 251), "a1", "b1", "a2")
	few, many := besides(w.State, 50), besides(w.State, 60)
	w.State = few

	ctx, done := context.WithCancel(t.Context())
	failed, made := make(chan error, 1), 0
	go func() {
		for ctx.Err() == nil {
			for _, f := range w.Stack().Families() {
				a := traffic.Probe{From: w.Pod("a1").NS, To: proxiertest.VIP(f, 251), Proto: "tcp"}.Do(t.Context())
				if a.Outcome != traffic.Reply {
					failed <- fmt.Errorf("connection %d to %s: %v %s (%v)", made, proxiertest.VIP(f, 251), a.Outcome, a.Detail,
						a.Fault)
					return
				}
				made++
			}
		}
		failed <- nil
	}()
	for range 10 {
		w.Restart(t, 0)
		proxiertest.Apply(t, w.Instances[0], many)
	}
	done()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if made < 20 {
		t.Errorf("%d connections were made: that proves little", made)
	}
}

// besides adds some plain Services to others. Their namespace sorts before those of the others.
func besides(others *store.Snapshot, n int) *store.Snapshot {
	s, plain := *others, proxiertest.Cluster(n, 3)
	s.Services = slices.Concat(s.Services, plain.Services)
	s.EndpointSlices = slices.Concat(s.EndpointSlices, plain.EndpointSlices)
	return &s
}
