// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
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
	// Proxiers have the names and claim the features of those without the fault.
	Proxiers []spec.Proxier

	fault Fault
	shims *shims

	touched atomic.Int64

	mu      sync.Mutex
	views   map[*store.Store]*store.Store // what the proxiers see of each cluster
	refused map[*faultyInstance]error     // the last error of each instance whose last Apply failed
}

// Seed puts a fault into proxiers. What they write is changed for this whole process, so one process has one fault. It
// is called inside a sandbox.
func Seed(ctx context.Context, f Fault, proxiers ...spec.Proxier) (*Seeding, error) {
	for _, p := range proxiers {
		// now, so that the fault does not change the rules of its probe; the result is asked for later
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

// Touched returns how many objects, inputs of programs and nodes the fault has changed so far. After zero changes
// nothing was broken.
func (s *Seeding) Touched() int { return int(s.touched.Load()) + s.shims.touched() }

// Refused returns the errors of the instances whose last Apply failed. Scenarios then fail for that reason, and not
// because they notice the fault.
func (s *Seeding) Refused() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.refused))
}

// view returns the cluster as the fault shows it, the same for all nodes.
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

// sabotage returns that of the fault, counted.
func (s *Seeding) sabotage() spec.Sabotage {
	var out spec.Sabotage
	if keep := s.fault.Sabotage.KeepStaleFlows; keep != nil {
		out.KeepStaleFlows = func() bool {
			s.touched.Add(1)
			return keep()
		}
	}
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

type faultyProxier struct {
	spec.Proxier
	*Seeding
}

// Other returns the other mode, with the fault in it too.
func (p *faultyProxier) Other() spec.Proxier {
	if other := p.Proxier.Other(); other != nil {
		return &faultyProxier{other, p.Seeding}
	}
	return nil
}

// Start places the proxier on a node where it sees another cluster and another configuration.
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
	return &faultyInstance{in, p.Seeding, node}, nil
}

type faultyInstance struct {
	spec.Instance
	*Seeding
	node spec.Node
}

// Apply shows the proxier its view of the cluster, which may be newer than want.
func (i *faultyInstance) Apply(ctx context.Context, want *store.Snapshot) error {
	seen := want
	if i.fault.State != nil {
		seen = i.node.Store.Snapshot()
	}
	err := i.Instance.Apply(ctx, seen)
	if ctx.Err() == nil {
		i.mu.Lock()
		if delete(i.refused, i); err != nil {
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
