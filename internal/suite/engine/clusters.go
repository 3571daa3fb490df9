// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/suite/spec"
)

// parallel is the number of scenarios that run concurrently in one cluster. They spend most of their time waiting for
// the proxier.
const parallel = 24

// parallelPrompt is that number for a prompt proxier. Its scenarios use the processors all the time, and each further
// one makes the rules and the neighbour tables of all longer: a run takes 3% less time than with 24.
const parallelPrompt = 18

// prompt is the time within which a prompt proxier converges for the first time. The built-in ones take some 50 ms,
// kube-proxy more than a second.
const prompt = 300 * time.Millisecond

// parallelSlow is that number on a slow machine, where scenarios wait for each other. With more of them, a packet or a
// request may come so late that a timeout of the kernel or of a proxier ends its connection.
const parallelSlow = 8

// parallel returns the number of scenarios that run concurrently in one cluster of a proxier with this trial.
func (o Options) parallel(t *trial) int {
	switch {
	case o.Parallel > 0:
		return o.Parallel
	case machine.Slow():
		return parallelSlow
	case t.took < prompt:
		return parallelPrompt
	}
	return parallel
}

// clustersBeside is the number of clusters that run concurrently with the default one. Their scenarios wait up to half
// a minute for proxiers to start and to do periodic work.
const clustersBeside = 5

// group is the cells that share a cluster.
type group struct {
	own    spec.ClusterConfig
	common bool // the default cluster
	cells  []*Cell
}

// alone reports whether the cell has a cluster for itself. It has one if the program is expected not to converge, since
// no other scenario could end there.
func (c *Cell) alone() bool {
	own := c.Scenario.Cluster
	return own != nil && !own.Shared || notReadyExpected(c.expected)
}

// needsZones reports whether a scenario may refer to the zones of nodes. In most clusters of a few scenarios none does,
// and a change of a Node makes every program converge once more.
func (g *group) needsZones() bool {
	return g.common || slices.ContainsFunc(g.cells, func(c *Cell) bool {
		return slices.Contains(c.Scenario.Needs, spec.Topology)
	})
}

// grouped groups cells by cluster. common are the cells of the default cluster, the longest first, so that no long
// scenario begins when the others have ended. Of those beside them, groups that share a cluster come first, then cells
// that need their own. quiet are the groups whose cluster is Quiet.
func grouped(cells []*Cell) (common *group, beside, quiet []*group) {
	var others, alone []*group
	for _, c := range cells {
		own := c.Scenario.Cluster
		if c.alone() {
			alone = append(alone, &group{own: *cmp.Or(own, &spec.ClusterConfig{}), cells: []*Cell{c}})
			continue
		}
		if own == nil {
			if common == nil {
				common = &group{common: true}
			}
			common.cells = append(common.cells, c)
			continue
		}
		i := slices.IndexFunc(others, func(g *group) bool { return reflect.DeepEqual(g.own, *own) })
		if i < 0 {
			i, others = len(others), append(others, &group{own: *own})
		}
		others[i].cells = append(others[i].cells, c)
	}
	if common != nil {
		slices.SortStableFunc(common.cells, func(a, b *Cell) int {
			return cmp.Compare(b.length(), a.length())
		})
	}
	for _, g := range append(others, alone...) {
		if g.own.Quiet {
			quiet = append(quiet, g)
		} else {
			beside = append(beside, g)
		}
	}
	return common, beside, quiet
}

// length orders cells by how long they take: those that wait, then by how often they wait for the cluster to converge,
// where many probes count as well.
func (c *Cell) length() int {
	if c.Scenario.Waits {
		return math.MaxInt
	}
	length, probes := 0, 0
	for _, step := range c.Scenario.Steps {
		if len(step.Do) > 0 {
			length++
		}
		if step.Check != nil {
			length++
		}
		for _, row := range step.Rows {
			probes += row.Count()
		}
	}
	return length + probes/probesPerRound
}

// probesPerRound is how many probes take about as long as the cluster takes to converge.
const probesPerRound = 60

// runProxier runs the cells of one proxier, those in the default cluster and those in others concurrently. Those in
// quiet clusters follow, one cluster after another.
func (r *Run) runProxier(ctx context.Context, p spec.Proxier) {
	var cells []*Cell
	for _, c := range r.cells {
		if c.Proxier.Name() == p.Name() && !c.ended() {
			cells = append(cells, c)
		}
	}
	common, beside, quiet := grouped(cells)
	t := newTrial()
	var wg sync.WaitGroup
	if common != nil {
		wg.Go(func() { r.inCluster(ctx, p, common, t) })
	} else {
		t.end("")
	}
	atOnce := clustersBeside
	if machine.Slow() {
		wg.Wait() // the three proxiers of a cluster already share a processor
		atOnce = 1
	}
	inEach := func(groups []*group, limit int) {
		each(groups, limit, func(g *group) { r.inCluster(ctx, p, g, t) })
	}
	inEach(beside, atOnce)
	wg.Wait()
	inEach(quiet, 1)
}

// inCluster builds a cluster and runs the cells in it. The default cluster first runs the trial of the program.
func (r *Run) inCluster(ctx context.Context, p spec.Proxier, g *group, t *trial) {
	env, err := r.build(ctx, p, g.own)
	if g.common {
		r.try(ctx, t, env, err, g.cells[0])
	}
	switch {
	case !t.passed():
		r.giveUp(t, g.cells)
		if err == nil {
			r.leaving.Go(func() { r.retire(ctx, env, (*agent).kill) })
		}
		return
	case err == nil:
		if first := g.cells[0]; first.alone() && notReadyExpected(first.expected) {
			env.applyLimit = env.applyLimit.atMost(machine.Limit(knownLimit))
		}
		if g.needsZones() {
			err = env.giveZones(ctx)
		}
	}
	if err != nil {
		for _, c := range g.cells {
			r.end(c, notBuilt(err))
		}
		if env != nil {
			r.leaving.Go(func() { r.retire(ctx, env, (*agent).kill) })
		}
		return
	}
	keep := r.options.Keep && g.common
	var mu sync.Mutex
	each(g.cells, r.options.parallel(t), func(c *Cell) {
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
	switch {
	case g.cells[0].alone(), ctx.Err() != nil:
		how = (*agent).kill // the nodes are removed with the cluster
	case len(g.cells) == 1:
		how = stopOn(env.proxier.agents[0].node)
	}
	r.leaving.Go(func() { r.retire(ctx, env, how) })
}

// manyRetired is the number of idle clusters that may wait for removal; each takes about 5 MiB. The kernel needs a
// quarter of a second for each, most of it asleep (rcu_barrier in br_multicast_dev_del for each bridge, synchronize_rcu
// in vxlan_sock_release for each tunnel), while it holds the lock on all network configuration, and everything stands
// still. A run of the catalogue has some 40 clusters, so it removes none.
const manyRetired = 64

// retire ends the programs of a cluster. Retired clusters are removed in batches and at the end of the run.
func (r *Run) retire(ctx context.Context, env *environment, how stopMethod) {
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

// noteLocked records an error of removing a cluster. The caller holds the lock.
func (r *Run) noteLocked(err error) {
	if err != nil {
		r.left = append(r.left, fmt.Errorf("take a cluster down: %w", err))
	}
}

// each calls f for every item, at most limit at once, and returns when all calls have.
func each[T any](items []T, limit int, f func(T)) {
	var calls errgroup.Group
	calls.SetLimit(limit)
	for _, item := range items {
		calls.Go(func() error { f(item); return nil })
	}
	_ = calls.Wait() // no call returns an error
}
