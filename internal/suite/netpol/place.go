// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// place starts the enforcer on every node.
func (b *Bench) place(ctx context.Context) error {
	for _, n := range b.cluster.Lab().Nodes() {
		in, err := b.start(ctx, b.enforcer, n)
		if err != nil {
			return err
		}
		b.instances = append(b.instances, in)
		tracked, err := observe.NewConntrack(n.NS)
		if err != nil {
			return err
		}
		b.tracked = append(b.tracked, tracked)
	}
	return nil
}

// start places a program on a node.
func (b *Bench) start(ctx context.Context, p spec.Proxier, n *lab.Node) (spec.Instance, error) {
	state, err := sandbox.TempDir(p.Name() + "-" + n.Name() + "-")
	if err != nil {
		return nil, err
	}
	b.states = append(b.states, state)
	node := spec.NodeOf(b.cluster.Lab(), n, b.view)
	node.StateDir, node.Log = state, slog.New(slog.DiscardHandler)
	in, err := p.Start(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%s: start %s: %w", n.Name(), p.Name(), err)
	}
	return in, nil
}

// gather begins to gather evidence of drops.
func (b *Bench) gather(context.Context) (err error) {
	if b.enforcer.Features()[spec.PolicyDropLog] {
		b.evidence, err = openDropLog(b.cluster.Lab().Nodes())
		return err
	}
	var pods []*netns.NS
	for i := range Pods {
		pods = append(pods, b.ns(i))
	}
	b.evidence, err = watchCrossing(pods)
	return err
}

// control shows that all ways are open where there are no policies. Who drops a packet later, when there are, is the
// enforcer: where that logs nothing, there is no other sign of it.
func (b *Bench) control(ctx context.Context) error {
	if b.enforcer.Features()[spec.PolicyDropLog] {
		return nil
	}
	open := oracle.FromSnapshot(b.view.Snapshot())
	judge := b.compare
	if b.options.Patience > 0 {
		judge = b.await
	}
	verdicts, err := judge(ctx, open)
	if _, wrong := SumUp(verdicts, err); wrong != nil {
		return fmt.Errorf("with %s and without policies, not every pod reaches every pod: %w", b.enforcer.Name(), wrong)
	}
	return nil
}
