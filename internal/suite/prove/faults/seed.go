// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Seeding is a fault in proxiers.
type Seeding struct {
	// Proxiers have the names and features of the proxiers without the fault.
	Proxiers []spec.Proxier

	fault Fault
	shims *shims

	touched atomic.Int64

	mu      sync.Mutex
	views   map[*store.Store]*store.Store // the proxiers' view of each cluster
	refused map[*faultyInstance]error     // the last error of each instance whose last Apply failed
}

// Seed returns proxiers with a fault. Rewrites affect the whole process, so a process can have only one fault. Call it
// inside a sandbox.
func Seed(ctx context.Context, f Fault, proxiers ...spec.Proxier) (*Seeding, error) {
	for _, p := range proxiers {
		// now, so that the fault does not change the rules of the check; the result is cached
		_ = p.Usable(ctx)
	}
	s := &Seeding{fault: f, views: map[*store.Store]*store.Store{}, refused: map[*faultyInstance]error{}}
	if len(f.Text) > 0 {
		var err error
		if s.shims, err = installShims(f); err != nil {
			return nil, err
		}
	}
	for _, p := range proxiers {
		s.Proxiers = append(s.Proxiers, &faultyProxier{p, s})
	}
	return s, nil
}

// Touched returns how many objects, inputs of programs and nodes the fault has changed so far. Zero means that the
// fault had no effect.
func (s *Seeding) Touched() int { return int(s.touched.Load()) + s.shims.touched() }

// Refused returns the errors of the instances whose last Apply failed. They make scenarios fail, which then do not
// prove that they notice the fault.
func (s *Seeding) Refused() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.refused))
}

// view returns the faulty view of a cluster, which all nodes share.
func (s *Seeding) view(of *store.Store) *store.Store {
	if s.fault.State == nil {
		return of
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[of] == nil {
		see := s.fault.State()
		s.views[of] = of.View(func(o store.Object) store.Object {
			seen := see(o)
			if equality.Semantic.DeepEqual(seen, o) {
				return o
			}
			s.touched.Add(1)
			return seen
		})
	}
	return s.views[of]
}

// sabotage returns the fault's Sabotage, and counts its calls as changes.
func (s *Seeding) sabotage() spec.Sabotage {
	var out spec.Sabotage
	out.KeepStaleFlows = s.counted(s.fault.Sabotage.KeepStaleFlows)
	out.IgnoreFailures = s.counted(s.fault.Sabotage.IgnoreFailures)
	out.RemoveOnFailure = s.counted(s.fault.Sabotage.RemoveOnFailure)
	if count := s.fault.Sabotage.CountEndpoints; count != nil {
		out.CountEndpoints = func(n int) int {
			changed := count(n)
			if changed != n {
				s.touched.Add(1)
			}
			return changed
		}
	}
	return out
}

// counted returns the function so that each call counts as a change.
func (s *Seeding) counted(sabotage func() bool) func() bool {
	if sabotage == nil {
		return nil
	}
	return func() bool {
		s.touched.Add(1)
		return sabotage()
	}
}

type faultyProxier struct {
	spec.Proxier
	*Seeding
}

// Other returns the other mode with the same fault.
func (p *faultyProxier) Other() spec.Proxier {
	if other := p.Proxier.Other(); other != nil {
		return &faultyProxier{other, p.Seeding}
	}
	return nil
}

// Start starts the proxier with the fault's view of the cluster and its configuration.
func (p *faultyProxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	node.Store, node.Sabotage = p.view(node.Store), p.sabotage()
	if p.fault.Config != nil {
		set := node.Config
		if p.fault.Config(&node.Config); !reflect.DeepEqual(set, node.Config) {
			p.touched.Add(1)
		}
	}
	in, err := p.Proxier.Start(ctx, node)
	if err != nil {
		return nil, err
	}
	return &faultyInstance{Instance: in, Seeding: p.Seeding, node: node}, nil
}

type faultyInstance struct {
	spec.Instance
	*Seeding
	node  spec.Node
	heard *store.Snapshot // the state that a deaf proxier last heard of
}

// BreakWatches implements spec.Instance.
func (i *faultyInstance) BreakWatches() (resume func()) {
	if i.fault.Deaf {
		i.touched.Add(1)
		i.heard = i.node.Store.Snapshot()
	}
	return i.Instance.BreakWatches()
}

// Apply applies the proxier's view of the cluster, which may be newer than want.
func (i *faultyInstance) Apply(ctx context.Context, want *store.Snapshot) error {
	seen := want
	if i.fault.State != nil {
		seen = i.node.Store.Snapshot()
	}
	if i.heard != nil {
		seen = i.heard
	}
	err := i.Instance.Apply(ctx, seen)
	if ctx.Err() == nil {
		i.mu.Lock()
		meant := i.fault.Ends && errors.As(err, new(*spec.EndedError))
		if delete(i.refused, i); err != nil && !meant {
			i.refused[i] = err
		}
		i.mu.Unlock()
	}
	if err != nil || i.fault.Node == nil {
		return err
	}
	i.touched.Add(1)
	return i.fault.Node(ctx, i.node, want)
}
