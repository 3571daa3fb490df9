// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/suite/spec"
)

// parallel is how many scenarios run in one cluster at once. They spend most of their time waiting for proxiers to
// apply changes, which all of them can wait for together.
const parallel = 24

// clustersBeside is how many further clusters are there at once beside the one that most scenarios share. Their
// scenarios wait for proxiers to start and for what these do now and then, up to half a minute.
const clustersBeside = 5

// tenants are cells that have a cluster together.
type tenants struct {
	own   spec.ClusterConfig
	cells []*Cell
}

// alone says whether the cell has a cluster that it shares with nobody.
func (c *Cell) alone() bool {
	own := c.Scenario.Cluster
	return own != nil && !own.Shared
}

// housed sorts cells by the clusters that they run in: first those that share the default one, if there are any, then
// those that share another, then those that have one each.
func housed(cells []*Cell) (common *tenants, others []*tenants) {
	var alone []*tenants
	for _, c := range cells {
		own := c.Scenario.Cluster
		if c.alone() {
			alone = append(alone, &tenants{own: *own, cells: []*Cell{c}})
			continue
		}
		if own == nil {
			if common == nil {
				common = &tenants{}
			}
			common.cells = append(common.cells, c)
			continue
		}
		i := slices.IndexFunc(others, func(t *tenants) bool { return reflect.DeepEqual(t.own, *own) })
		if i < 0 {
			i, others = len(others), append(others, &tenants{own: *own})
		}
		others[i].cells = append(others[i].cells, c)
	}
	return common, append(others, alone...)
}

// runProxier runs the cells of one proxier: those that share the default cluster, and beside them those that need
// another.
func (r *Run) runProxier(ctx context.Context, p spec.Proxier) {
	var cells []*Cell
	for _, c := range r.cells {
		if c.Proxier.Name() == p.Name() && !c.ended() {
			cells = append(cells, c)
		}
	}
	common, others := housed(cells)
	var wg sync.WaitGroup
	if common != nil {
		wg.Go(func() { r.inCluster(ctx, p, common) })
	}
	beside := clustersBeside
	if machine.Slow() {
		wg.Wait() // a cluster has three proxiers to wait for, which share a processor
		beside = 1
	}
	each(others, beside, func(t *tenants) { r.inCluster(ctx, p, t) })
	wg.Wait()
}

// inCluster builds a cluster and runs the cells in it.
func (r *Run) inCluster(ctx context.Context, p spec.Proxier, t *tenants) {
	env, err := r.build(ctx, p, t.own)
	if err != nil {
		for _, c := range t.cells {
			r.end(c, placing(err))
		}
		return
	}
	keep := false
	var mu sync.Mutex
	each(t.cells, parallel, func(c *Cell) {
		result := r.runCell(ctx, env, c)
		if r.options.KeepFailed && (result.Verdict == spec.Fail || result.Verdict == spec.Broken) {
			mu.Lock()
			keep = true
			mu.Unlock()
		}
		r.end(c, result)
	})
	if keep {
		r.mu.Lock()
		r.kept = append(r.kept, env)
		r.mu.Unlock()
		return
	}
	how := (*agent).stop
	if t.cells[0].alone() {
		how = (*agent).kill // what it leaves behind on its nodes is nobody's
	}
	r.leaving.Go(func() { r.retire(ctx, env, how) })
}

// manyRetired is how many clusters in which nothing happens any more may wait to be taken down; they take some 5 MiB
// each. The kernel takes a quarter of a second for each, most of it asleep (rcu_barrier in br_multicast_dev_del for
// each bridge, synchronize_rcu in vxlan_sock_release for each tunnel) with the lock over all network configuration in
// its hand.
const manyRetired = 32

// retire ends what runs in a cluster. It is taken down when there are many, or at the end of the run.
func (r *Run) retire(ctx context.Context, env *environment, how ending) {
	err := env.end(context.WithoutCancel(ctx), how)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired = append(r.retired, env.Cluster)
	if len(r.retired) > manyRetired {
		err = errors.Join(err, r.retired[0].Close())
		r.retired = r.retired[1:]
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", env.proxier.program.Name(), err)
	}
	r.noteLocked(err)
}

// noteLocked keeps what went wrong when a cluster was taken down.
func (r *Run) noteLocked(err error) {
	if err != nil {
		r.left = append(r.left, fmt.Errorf("take a cluster down: %w", err))
	}
}

// each calls f for every item, at most limit at once, and returns when all calls have.
func each[T any](items []T, limit int, f func(T)) {
	slots := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	wg.Wait()
}
