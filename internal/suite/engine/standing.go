// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// Standing is a cluster with a proxier on every node, and maybe an enforcer, that no scenario uses and that stays until
// its process ends. Its methods may be called from any goroutine.
type Standing struct {
	env *environment
	mu  sync.RWMutex // held for writing while programs are replaced
}

// Stand starts the proxier on every node of a cluster, and o.Enforcer if there is one, and returns when they have
// converged. It closes the cluster on failure. It uses no other option.
func Stand(ctx context.Context, c *cluster.Cluster, o Options, p spec.Proxier) (*Standing, error) {
	for _, program := range o.programs(p) {
		if err := program.Usable(ctx, c.Lab().Stack().Families()...); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", program.Name(), err), c.Close())
		}
	}
	env, err := equipped(ctx, c, o, p, spec.ClusterConfig{})
	if err != nil {
		return nil, err
	}
	s := &Standing{env: env}
	if err := env.giveZones(ctx); err != nil {
		return s, err
	}
	return s, s.Settle(ctx)
}

// Close ends the programs and removes the cluster.
func (s *Standing) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env.close(ctx)
}

// Cluster returns the cluster.
func (s *Standing) Cluster() *cluster.Cluster { return s.env.Cluster }

// Settle waits until the programs have programmed the present state of the cluster, and the load balancer has made its
// routes.
func (s *Standing) Settle(ctx context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	revision := s.env.Store().Snapshot().Revision
	if err := s.env.WaitBalancer(ctx, revision); err != nil {
		return err
	}
	return s.env.settle(ctx, revision)
}

// Programs returns the names of the proxier and of the enforcer, which is empty if there is none.
func (s *Standing) Programs() (proxier, enforcer string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.env.programs()
}

// Conntrack returns the conntrack table of a node, or nil if there is no such node.
func (s *Standing) Conntrack(node string) *observe.Conntrack { return s.env.conntrack[node] }

// Failures returns the error of the newest attempt of each program that has not converged.
func (s *Standing) Failures() []error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var errs []error
	for _, f := range s.env.fleets() {
		for _, a := range f.agents {
			if err := a.newestFailure(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", a.node, f.role, err))
			}
		}
	}
	return errs
}

// Remarks returns what the programs say of the chains, sets, comments and sockets that they have made on a node, by
// name. Many programs say nothing.
func (s *Standing) Remarks(ctx context.Context, node string) (map[string]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.env.remarks(ctx, node)
}

// Switch replaces the proxier on every node, and returns when the new one has converged. The old one removes its rules
// if it can.
func (s *Standing) Switch(ctx context.Context, p spec.Proxier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.Usable(ctx, s.env.Lab().Stack().Families()...); err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	old := s.env.proxier
	how := (*agent).stop
	if old.program.Features()[spec.Cleanup] {
		how = (*agent).cleanup
	}
	if err := old.end(ctx, s.env.applyLimit, how); err != nil {
		return fmt.Errorf("end %s: %w", old.program.Name(), err)
	}
	s.env.proxier = newFleet(proxierRole, p)
	programs := []spec.Proxier{p}
	if s.env.enforcer != nil {
		programs = append(programs, s.env.enforcer.program)
	}
	s.env.declared = features(programs)
	if err := s.env.placeAll(ctx, s.env.proxier); err != nil {
		return err
	}
	s.env.proxier.begin()
	return s.env.settle(ctx, s.env.Store().Snapshot().Revision)
}

// between calls f between two calls of Apply.
func (a *agent) between(ctx context.Context, f func() error) error {
	select {
	case a.applying <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-a.applying }()
	return f()
}

// newestFailure returns the error of the newest attempt, nil if it succeeded.
func (a *agent) newestFailure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failure
}
