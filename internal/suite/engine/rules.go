// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Rules starts a proxier in a new cluster with the configuration own, applies objects, and writes the resulting rules
// of a node. Of the options it uses only the cluster's kind.
func Rules(ctx context.Context, o Options, p spec.Proxier, own spec.ClusterConfig, objects []store.Object, node string,
	w io.Writer) (err error) {
	if !slices.Contains(NodeNames(), node) {
		return fmt.Errorf("there is no node %q: there are %s", node, strings.Join(NodeNames(), ", "))
	}
	if err := p.Usable(ctx, o.Stack.Families()...); err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	own.Nodes = nil // so that the requested node has a proxier
	env, err := NewRun(nil, o).build(ctx, p, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.close(context.WithoutCancel(ctx))) }()
	if err := env.giveZones(ctx); err != nil {
		return err
	}
	if err := env.Store().Apply(objects...); err != nil {
		return err
	}
	for _, ns := range env.Store().Snapshot().Namespaces {
		if err := env.WaitPods(ctx, ns.Name); err != nil {
			return err
		}
	}
	if err := env.settle(ctx, env.Store().Snapshot().Revision); err != nil {
		return err
	}
	return env.proxier.agent(node).dump(ctx, w)
}

// NodeNames are the names of the nodes of every cluster.
func NodeNames() []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}
