// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// writes are what an instance writes to the kernel. It implements spec.Refusal.
type writes struct {
	refused atomic.Pointer[[]lab.Family] // nil means none, and an empty list all
	count   sync.Map                     // of refused writes, by family: *atomic.Int64
}

// RefuseWrites implements spec.Instance.
func (in *instance) RefuseWrites(_ context.Context, families ...lab.Family) (spec.Refusal, error) {
	in.writes.count.Clear()
	in.writes.refused.Store(&families)
	return &in.writes, nil
}

// refuse reports whether to refuse a write of a family.
func (w *writes) refuse(f lab.Family) bool {
	refused := w.refused.Load()
	return refused != nil && (len(*refused) == 0 || slices.Contains(*refused, f))
}

func (w *writes) Writes(f lab.Family) int { return int(w.counter(f).Load()) }

func (w *writes) counter(f lab.Family) *atomic.Int64 {
	counter, _ := w.count.LoadOrStore(f, new(atomic.Int64))
	return counter.(*atomic.Int64)
}

func (w *writes) End() error {
	w.refused.Store(nil)
	return nil
}

// guarded is a mechanism whose writes can be refused.
type guarded struct {
	Mechanism
	family   lab.Family
	writes   *writes
	sabotage spec.Sabotage
}

func (g *guarded) Program(ctx context.Context, state *model.State, at Place) error {
	err := errors.New("the node refuses every write")
	if g.writes.refuse(g.family) {
		g.writes.counter(g.family).Add(1)
	} else {
		err = g.Mechanism.Program(ctx, state, at)
	}
	if err == nil {
		return nil
	}
	if remove := g.sabotage.RemoveOnFailure; remove != nil && remove() {
		err = errors.Join(err, g.Remove(ctx))
	}
	if ignore := g.sabotage.IgnoreFailures; ignore != nil && ignore() {
		return nil
	}
	return err
}

// lateness is since when a family has had changes that it could not program. It is safe for concurrent use.
type lateness struct{ since atomic.Pointer[time.Time] }

// record takes note of how an attempt ended, and returns its error.
func (l *lateness) record(err error) error {
	now := time.Now()
	if err == nil {
		l.since.Store(nil)
	} else {
		l.since.CompareAndSwap(nil, &now)
	}
	return err
}

// defaultSyncPeriod is the default of Kubernetes for ProxyConfig.SyncPeriod.
const defaultSyncPeriod = 30 * time.Second

// healthy reports whether no family is late by two sync periods, as kube-proxy does.
func (in *instance) healthy() bool {
	limit := 2 * cmp.Or(in.node.Config.SyncPeriod, defaultSyncPeriod)
	for _, f := range in.families {
		if since := f.late.since.Load(); since != nil && time.Since(*since) > limit {
			return false
		}
	}
	return true
}
