// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

func (s *scope) Settle(ctx context.Context) error {
	if err := s.waitPods(ctx); err != nil {
		return err
	}
	return s.env.settle(ctx, s.newest())
}

// waitPods waits until the scenario's pods run.
func (s *scope) waitPods(ctx context.Context) error {
	for _, ns := range s.namespaces() {
		if err := s.env.WaitPods(ctx, ns); err != nil {
			return spec.HarnessErrorf("wait for the pods: %w", err)
		}
	}
	return nil
}

// newest returns the newest revision that changed an object of the scenario or a cluster-wide one. The scenario need
// not wait for the changes of other scenarios.
func (s *scope) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, err := s.Store().EventsSince(s.revision)
	if err != nil { // the history no longer contains the revision
		s.revision = s.Store().Snapshot().Revision
		s.ownRevision = s.revision
		return s.ownRevision
	}
	for _, e := range events {
		s.revision = e.Revision
		ns := e.Object.GetNamespace()
		if e.Kind == store.KindNamespace {
			ns = e.Object.GetName()
		}
		if ns == "" || slices.Contains(s.namespacesLocked(), ns) {
			s.ownRevision = e.Revision
		}
	}
	return s.ownRevision
}
