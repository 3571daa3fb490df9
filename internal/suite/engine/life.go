// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/viplab/viplab/suite/spec"
)

// life is a program on one node of a world. It implements spec.Control.
type life struct {
	world *world
	fleet *fleet
	node  string
}

func (w *world) ProxierControl(node string) spec.Control { return life{w, w.env.proxier, node} }

func (w *world) EnforcerControl(node string) spec.Control { return life{w, w.env.enforcing(), node} }

// agent returns the place of the node's agent, or an error if the scenario must not control it.
func (l life) agent() (**agent, error) {
	if !l.world.cell.alone() {
		return nil, spec.HarnessErrorf("%s: other scenarios use this %s: the scenario needs a cluster of its own",
			l.node, l.fleet.role)
	}
	for i, a := range l.fleet.agents {
		if a.node == l.node {
			return &l.fleet.agents[i], nil
		}
	}
	return nil, spec.HarnessErrorf("%q is not a node", l.node)
}

func (l life) Kill(ctx context.Context) error {
	a, err := l.agent()
	if err != nil {
		return err
	}
	return (*a).kill(ctx, l.world.env.applyLimit)
}

func (l life) Cleanup(ctx context.Context) error {
	a, err := l.agent()
	if err != nil {
		return err
	}
	return (*a).cleanup(ctx, l.world.env.applyLimit)
}

func (l life) Start(ctx context.Context) error { return l.start(ctx, l.fleet.program, nil) }

func (l life) StartWithoutEndpoints(ctx context.Context) (release func(), err error) {
	gate := make(chan struct{})
	err = l.start(ctx, l.fleet.program, gate)
	return sync.OnceFunc(func() { close(gate) }), err
}

func (l life) Switch(ctx context.Context) error {
	other := l.fleet.program.Other()
	if other == nil {
		return fmt.Errorf("%s has no other mode", l.fleet.program.Name())
	}
	return l.start(ctx, other, nil)
}

func (l life) start(ctx context.Context, p spec.Proxier, gate <-chan struct{}) error {
	if err := l.Kill(ctx); err != nil {
		return err
	}
	a, err := l.agent()
	if err != nil {
		return err
	}
	next, err := l.world.env.place(ctx, l.fleet, l.world.Lab().Node(l.node), p, gate)
	if err != nil {
		return err
	}
	*a = next
	return nil
}
