// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// control controls a program on one node of a world. It implements spec.Control.
type control struct {
	world *world
	fleet *fleet
	node  string
}

func (w *world) ProxierControl(node string) spec.Control { return control{w, w.env.proxier, node} }

func (w *world) EnforcerControl(node string) spec.Control { return control{w, w.env.enforcing(), node} }

// agent returns the place of the node's agent, or an error if the scenario must not control it.
func (c control) agent() (**agent, error) {
	if !c.world.cell.alone() {
		return nil, spec.HarnessErrorf("%s: other scenarios use this %s: the scenario needs a cluster of its own",
			c.node, c.fleet.role)
	}
	for i, a := range c.fleet.agents {
		if a.node == c.node {
			return &c.fleet.agents[i], nil
		}
	}
	return nil, spec.HarnessErrorf("%q is not a node", c.node)
}

func (c control) Kill(ctx context.Context) error {
	a, err := c.agent()
	if err != nil {
		return err
	}
	return (*a).kill(ctx, c.world.env.applyLimit)
}

func (c control) Cleanup(ctx context.Context) error {
	a, err := c.agent()
	if err != nil {
		return err
	}
	return (*a).cleanup(ctx, c.world.env.applyLimit)
}

func (c control) Start(ctx context.Context) error { return c.start(ctx, c.fleet.program, nil) }

func (c control) StartWithoutEndpoints(ctx context.Context) (release func(), err error) {
	gate := make(chan struct{})
	err = c.start(ctx, c.fleet.program, gate)
	return sync.OnceFunc(func() { close(gate) }), err
}

func (c control) BreakWatches(ctx context.Context) (resume func(), err error) {
	a, err := c.agent()
	if err != nil {
		return nil, err
	}
	return (*a).withhold(ctx)
}

func (c control) Switch(ctx context.Context) error {
	other := c.fleet.program.Other()
	if other == nil {
		return fmt.Errorf("%s has no other mode", c.fleet.program.Name())
	}
	return c.start(ctx, other, nil)
}

// RefuseWrites implements spec.Control. The engine retries a failed Apply.
func (c control) RefuseWrites(ctx context.Context, families ...lab.Family) (spec.Refusal, error) {
	a, err := c.agent()
	if err != nil {
		return nil, err
	}
	return (*a).instance.RefuseWrites(ctx, families...)
}

func (c control) start(ctx context.Context, p spec.Proxier, gate <-chan struct{}) error {
	if err := c.Kill(ctx); err != nil {
		return err
	}
	a, err := c.agent()
	if err != nil {
		return err
	}
	next, err := c.world.env.place(ctx, c.fleet, c.world.Lab().Node(c.node), p, gate)
	if err != nil {
		return err
	}
	next.begin()
	*a = next
	return nil
}
