// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"sync"

	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// cluster is what all processes of one cluster share: the API and the canaries.
type cluster struct {
	store    *store.Store
	api      *api.Server
	canaries *canaries
	nodes    int // the number of nodes that use it
}

// clusters are the clusters in use, by their store.
var (
	joining  sync.Mutex
	clusters = map[*store.Store]*cluster{}
)

// join returns the cluster of a node and counts a reference to it. The first node to join creates the cluster.
func join(node spec.Node) (*cluster, error) {
	joining.Lock()
	defer joining.Unlock()
	c := clusters[node.Store]
	if c == nil {
		canaries, err := newCanaries(node.Store)
		if err != nil {
			return nil, err
		}
		c = &cluster{store: node.Store, api: api.New(node.Store), canaries: canaries}
		clusters[node.Store] = c
	}
	c.nodes++
	if err := c.canaries.serve(node); err != nil {
		return nil, errors.Join(err, c.leaveLocked())
	}
	return c, nil
}

// leave drops a node's reference to the cluster. The last one closes it.
func (c *cluster) leave() error {
	joining.Lock()
	defer joining.Unlock()
	return c.leaveLocked()
}

func (c *cluster) leaveLocked() error {
	if c.nodes--; c.nodes > 0 {
		return nil
	}
	delete(clusters, c.store)
	return errors.Join(c.canaries.close(), c.api.Close())
}
