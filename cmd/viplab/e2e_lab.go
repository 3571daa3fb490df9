// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/suite/e2e"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// on runs the specs in a lab with one proxier. It skips a proxier that cannot run here.
func (r *e2eRun) on(ctx context.Context, p spec.Proxier) (results []spec.Result, err error) {
	runnable, omitted := r.suite.Part(r.specs, r.lab(p), p.Name())
	if len(runnable) == 0 {
		return omitted, nil
	}
	began := time.Now()
	l, err := r.start(ctx, p)
	if unusable := (*spec.UnusableError)(nil); errors.As(err, &unusable) {
		return append(omitted, r.suite.Skipped(runnable, p.Name(), unusable.Error())...), nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	place, err := e2e.Outside(ctx, l.Standing().Cluster().Lab())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	folder, err := sandbox.TempDir("e2e-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, l.Kubeconfig(), 0o600); err != nil {
		return nil, err
	}
	fmt.Fprintf(r.stderr, "%s: a lab of %d nodes is up after %.1f s; %d specs run in %d processes\n", p.Name(),
		r.flags.nodes, time.Since(began).Seconds(), len(runnable), e2e.Processes(r.flags.parallel, len(runnable)))
	progress := newE2eProgress(r, p, len(runnable))
	evidence := func(namespace string, w io.Writer) { // an error leaves the namespace to the end of the lab
		l.TraceServices(ctx, namespace, w)
		_ = l.Standing().Cluster().Store().Delete(store.KindNamespace, "", namespace)
	}
	defer progress.end()
	ran, err := r.suite.Run(ctx, e2e.Options{
		Place: place, Kubeconfig: kubeconfig, Nodes: r.flags.nodes, Specs: runnable, Parallel: r.flags.parallel,
		Proxier: p.Name(), Out: r.flags.out, Expect: r.known[p.Name()], Evidence: evidence,
		Listen: progress.listen, FailFast: r.flags.failFast,
	})
	return append(ran, omitted...), err
}

// start starts a lab. Its nodes are in zones, which specs about topology need.
func (r *e2eRun) start(ctx context.Context, p spec.Proxier) (*live.Lab, error) {
	t := lab.Topology{Stack: r.cluster.Stack, Overlay: r.cluster.Overlay, PodNetwork: r.cluster.PodNetwork}
	for i := range r.flags.nodes {
		t.Nodes = append(t.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1)})
	}
	l, err := live.Start(ctx, r.builder, live.Config{Name: "e2e", Topology: t, Proxier: p, Enforcer: r.enforcer})
	if err != nil {
		return nil, err
	}
	if err := giveZones(l.Standing().Cluster().Store(), t.Nodes); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// zones is how many zones the nodes are in.
const zones = 3

func giveZones(state *store.Store, nodes []lab.NodeSpec) error {
	return state.Do(func(tx *store.Tx) error {
		var errs []error
		for i, n := range nodes {
			errs = append(errs, store.Update(tx, "", n.Name, func(o *corev1.Node) {
				o.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", i%zones+1)
			}))
		}
		return errors.Join(errs...)
	})
}
