// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Seeding is a fault in proxiers.
type Seeding struct {
	// Proxiers have the names and claim the features of those without the fault.
	Proxiers []spec.Proxier

	fault Fault
	shims *shims

	mu      sync.Mutex
	views   map[*store.Store]*store.Store // clusters as the proxiers see them, by what they are
	touched int
	refused map[*instance]error // by those whose last attempt has failed
}

// Seed puts a fault into proxiers. What they write is changed for this whole process, so one process has one fault. It
// is called inside a sandbox.
func Seed(ctx context.Context, f Fault, proxiers ...spec.Proxier) (*Seeding, error) {
	for _, p := range proxiers {
		// which they find out once, by rules of their own: those are no business of the fault. It is asked again
		_ = p.Usable(ctx)
	}
	s := &Seeding{fault: f, views: map[*store.Store]*store.Store{}, refused: map[*instance]error{}}
	if len(f.Text) > 0 {
		var err error
		if s.shims, err = installShims(f); err != nil {
			return nil, err
		}
	}
	for _, p := range proxiers {
		s.Proxiers = append(s.Proxiers, s.seed(p))
	}
	return s, nil
}

// Touched says how many objects, inputs of programs and nodes the fault has changed so far. Zero means that whatever
// was judged was not broken.
func (s *Seeding) Touched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched + s.shims.touched()
}

// Refused says why proxiers could not be brought to obey. Then scenarios fail for that, and not because they have
// noticed the fault. One that fails and succeeds when it tries again, as after a flush of its rules, is not among them.
func (s *Seeding) Refused() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.refused))
}

func (s *Seeding) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched++
}

// tried notes how an attempt of an instance to obey has ended.
func (s *Seeding) tried(i *instance, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.refused, i); err != nil {
		s.refused[i] = err
	}
}

// view is the cluster as the fault shows it, the same for all nodes.
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
			s.touch()
			return seen
		})
	}
	return s.views[of]
}

// hooks are those of the fault, counted.
func (s *Seeding) hooks() keeper.Hooks {
	var h keeper.Hooks
	if stale := s.fault.Kernel.Stale; stale != nil {
		h.Stale = func(w *conntrack.Wanted) *conntrack.Wanted {
			s.touch()
			return stale(w)
		}
	}
	if health := s.fault.Kernel.Health; health != nil {
		h.Health = func(c healthcheck.Check) healthcheck.Check {
			if changed := health(c); changed != c {
				s.touch()
				c = changed
			}
			return c
		}
	}
	return h
}

// seeded is a proxier with a fault in it.
type seeded struct {
	spec.Proxier
	*Seeding
}

// seed wraps a proxier. One that has another mode has it with the fault.
func (s *Seeding) seed(p spec.Proxier) spec.Proxier {
	with := &seeded{p, s}
	if _, ok := p.(spec.Switcher); ok {
		return switcher{with}
	}
	return with
}

type switcher struct{ *seeded }

func (s switcher) Other() spec.Proxier {
	return &seeded{s.Proxier.(spec.Switcher).Other(), s.Seeding}
}

// Start places the proxier on a node where it sees another cluster and another configuration.
func (p *seeded) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	node.Store = p.view(node.Store)
	if p.fault.Config != nil {
		set := node.Config
		if p.fault.Config(&node.Config); !reflect.DeepEqual(set, node.Config) {
			p.touch()
		}
	}
	in, err := p.Proxier.Start(ctx, node)
	if err != nil {
		return nil, err
	}
	if k, ok := innermost(in).(interface{ Hook(keeper.Hooks) }); ok {
		k.Hook(p.hooks())
	}
	with := &instance{in, p.Seeding, node}
	if _, ok := in.(spec.Cleaner); ok {
		return cleaner{with}, nil
	}
	return with, nil
}

// innermost is an instance without those that wrap it.
func innermost(in spec.Instance) spec.Instance {
	for {
		w, ok := in.(interface{ Unwrap() spec.Instance })
		if !ok {
			return in
		}
		in = w.Unwrap()
	}
}

// instance is a seeded proxier on a node.
type instance struct {
	spec.Instance
	*Seeding
	node spec.Node
}

type cleaner struct{ *instance }

func (c cleaner) Cleanup(ctx context.Context) error { return c.Instance.(spec.Cleaner).Cleanup(ctx) }

// Apply tells the proxier what it is to see, which may be newer than what is wanted.
func (i *instance) Apply(ctx context.Context, want *store.Snapshot) error {
	told := want
	if i.fault.State != nil {
		told = i.node.Store.Snapshot()
	}
	err := i.Instance.Apply(ctx, told)
	if ctx.Err() == nil {
		i.tried(i, err)
	}
	if err != nil {
		return err
	}
	if i.fault.Node == nil {
		return nil
	}
	i.touch()
	return i.fault.Node(ctx, i.node, want)
}
