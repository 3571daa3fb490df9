// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

func (w *world) Settle(ctx context.Context) error {
	if err := w.waitPods(ctx); err != nil {
		return err
	}
	return w.env.settle(ctx, w.newest())
}

// waitPods returns when the scenario's pods run.
func (w *world) waitPods(ctx context.Context) error {
	for _, ns := range w.namespaces() {
		if err := w.env.WaitPods(ctx, ns); err != nil {
			return spec.HarnessErrorf("wait for the pods: %w", err)
		}
	}
	return nil
}

// newest is the newest revision that the scenario has to do with. What others change all the time beside it is nothing
// that it has to wait for, and neither is a state that it has waited for before.
func (w *world) newest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, err := w.env.Store().EventsSince(w.read)
	if err != nil { // the history does not reach back so far
		w.read = w.env.Store().Snapshot().Revision
		w.concerns = w.read
		return w.concerns
	}
	for _, e := range events {
		w.read = e.Revision
		if w.concernedLocked(e) {
			w.concerns = e.Revision
		}
	}
	return w.concerns
}

// concernedLocked says whether a change is one of the scenario's own objects, or of the nodes that all share.
func (w *world) concernedLocked(e store.Event) bool {
	ns := e.Object.GetNamespace()
	if e.Kind == store.KindNamespace {
		ns = e.Object.GetName()
	}
	return ns == "" || slices.Contains(w.namespacesLocked(), ns)
}
