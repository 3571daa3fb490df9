// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// nodes are the nodes of every cluster that scenarios run in.
var nodes = []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}

// zoneOf returns the zone of a node. Only topology hints refer to zones.
func zoneOf(node string) string {
	if node == nodes[0].Name {
		return "east"
	}
	return "west"
}

// environment is a cluster with a proxier on every node, and maybe an enforcer.
type environment struct {
	*cluster.Cluster
	proxier   *fleet
	enforcer  *fleet          // nil if there is none
	declared  spec.FeatureSet // features of both together
	own       spec.ClusterConfig
	demand    demand
	conntrack map[string]*observe.Conntrack // by node
	stateDir  string
	// applyLimit is how long a proxier may take to converge.
	applyLimit timeLimit
	// tracing is held while packets of the cluster are traced.
	tracing sync.Mutex
}

// build creates a cluster and starts the proxier on its nodes, and then the enforcer: no packet passes between the two.
// An error of the cluster is a HarnessError; an error of the programs is not. An interrupted run builds nothing.
func (r *Run) build(ctx context.Context, p spec.Proxier, own spec.ClusterConfig) (*environment, error) {
	if ctx.Err() != nil {
		return nil, spec.HarnessErrorf("build the cluster: %w", context.Cause(ctx))
	}
	c, err := cluster.New(ctx, lab.Topology{
		Nodes: nodes, Stack: r.options.Stack, PodNetwork: r.options.PodNetwork, Overlay: r.options.Overlay,
	})
	if err != nil {
		return nil, spec.HarnessErrorf("build the cluster: %w", err)
	}
	r.takeNote(c.Lab())
	return equipped(ctx, c, r.options, p, own)
}

// equipped starts the programs on the nodes of a cluster. It closes the cluster if one of them does not start.
func equipped(ctx context.Context, c *cluster.Cluster, o Options, p spec.Proxier,
	own spec.ClusterConfig) (env *environment, err error) {
	env = &environment{
		Cluster: c, proxier: newFleet(proxierRole, p), own: own, declared: features(o.programs(p)),
		applyLimit: timeLimitOf(o),
		conntrack:  map[string]*observe.Conntrack{},
	}
	if o.Enforcer != nil {
		env.enforcer = newFleet(enforcerRole, o.Enforcer)
	}
	if env.stateDir, err = sandbox.TempDir("proxier-"); err != nil {
		return nil, errors.Join(spec.HarnessErrorf("make a folder for the proxier's state: %w", err), c.Close())
	}
	for _, n := range c.Lab().Nodes() {
		if err := env.equip(n, own); err != nil {
			return nil, errors.Join(spec.HarnessErrorf("%s: %w", n.Name(), err), env.close(ctx))
		}
		ct, err := observe.NewConntrack(n.NS)
		if err != nil {
			return nil, errors.Join(&spec.HarnessError{Err: err}, env.close(ctx))
		}
		env.conntrack[n.Name()] = ct
	}
	for _, f := range env.fleets() {
		if err := env.placeAll(ctx, f); err != nil {
			return nil, errors.Join(err, env.close(ctx))
		}
		f.begin()
	}
	return env, nil
}

// placeAll starts the program of a fleet on every node, after the earlier fleets have converged for the first time. So
// the rules of an enforcer are inserted before those of the proxier, as in a real cluster. The programs apply states
// once the caller has called begin.
func (e *environment) placeAll(ctx context.Context, f *fleet) error {
	if err := e.settle(ctx, e.Store().Snapshot().Revision); err != nil {
		return err
	}
	nodes := slices.DeleteFunc(e.Lab().Nodes(), func(n *lab.Node) bool { return !e.hasProxier(n.Name()) })
	if len(nodes) == 0 {
		return nil
	}
	f.agents = make([]*agent, len(nodes))
	place := func(i int) (err error) {
		f.agents[i], err = e.place(ctx, f, nodes[i], f.program, nil)
		return err
	}
	err := place(0) // what the programs of a cluster share is made on its first node
	if err == nil {
		var others errgroup.Group
		for i := 1; i < len(nodes); i++ {
			others.Go(func() error { return place(i) })
		}
		err = others.Wait()
	}
	f.agents = slices.DeleteFunc(f.agents, func(a *agent) bool { return a == nil })
	return err
}

// hasProxier reports whether the node gets a proxier.
func (e *environment) hasProxier(node string) bool {
	return len(e.own.Nodes) == 0 || slices.Contains(e.own.Nodes, node)
}

func (r *Run) takeNote(l *lab.Lab) {
	overlay, reason := l.Overlay()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = fmt.Sprintf("%d nodes, %s pods, overlay %s (%s), %s",
		len(l.Nodes()), l.Topology().PodNetwork, overlay, reason, l.Stack())
	if r.options.Enforcer != nil {
		r.note += ", enforcer " + r.options.Enforcer.Name()
	}
}

// place starts a program of the fleet on one node. If gate is not nil, EndpointSlices are withheld from the program
// until gate is closed.
func (e *environment) place(ctx context.Context, f *fleet, n *lab.Node, program spec.Proxier,
	gate <-chan struct{}) (*agent, error) {
	state, err := os.MkdirTemp(e.stateDir, n.Name()+"-")
	if err != nil {
		return nil, &spec.HarnessError{Err: err}
	}
	node := spec.NodeOf(e.Lab(), n, e.Store())
	node.StateDir, node.Config = state, e.own.Proxy.For(program.Features())
	node.EndpointsGate, node.Log = gate, f.log.With("node", n.Name())
	return startAgent(context.WithoutCancel(ctx), f.role, program, node, &e.demand)
}

// equip applies the cluster configuration to a node before a proxier starts.
func (e *environment) equip(n *lab.Node, own spec.ClusterConfig) error {
	if err := n.SetSysctls(append(patientTracking, own.Sysctls...)...); err != nil {
		return err
	}
	return patientIPVS(n)
}

// giveZones labels the nodes with their zones once the programs have converged, as a cloud provider labels new Nodes. A
// label that comes while kube-proxy starts may be lost (docs/findings.md). A program that does not converge is left for
// the next settle to report.
func (e *environment) giveZones(ctx context.Context) error {
	_ = e.settle(ctx, e.Store().Snapshot().Revision)
	err := e.Store().Do(func(tx *store.Tx) error {
		var errs []error
		for _, n := range e.Lab().Nodes() {
			errs = append(errs, store.Update(tx, "", n.Name(), func(o *corev1.Node) {
				o.Labels[corev1.LabelTopologyZone] = zoneOf(n.Name())
			}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return spec.HarnessErrorf("label the nodes: %w", err)
	}
	return nil
}

// settle returns when every running program has converged to the state of a revision.
func (e *environment) settle(ctx context.Context, revision uint64) error {
	done := e.demand.await(revision)
	defer done()
	for _, f := range e.fleets() {
		if err := f.wait(ctx, revision, e.applyLimit); err != nil {
			return err
		}
	}
	return nil
}

// remarks returns what the programs on a node say of the chains, sets, comments and sockets that they have made, by
// name. Many programs say nothing.
func (e *environment) remarks(ctx context.Context, node string) (map[string]string, error) {
	if e.Lab().Node(node) == nil {
		return nil, fmt.Errorf("%q is not a node", node)
	}
	all := map[string]string{}
	for _, f := range e.fleets() {
		a := f.agent(node)
		if a == nil {
			continue // the scenario has asked for a cluster with programs on other nodes
		}
		r, ok := a.instance.(interface{ Remarks() map[string]string }) // kit.Remarker
		if !ok {
			continue
		}
		err := a.between(ctx, func() error {
			maps.Copy(all, r.Remarks())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// close stops proxiers and enforcers, and removes the cluster.
func (e *environment) close(ctx context.Context) error {
	return errors.Join(e.end(ctx, (*agent).stop), e.Cluster.Close())
}

// end ends proxiers and enforcers in the given way, and keeps the cluster.
func (e *environment) end(ctx context.Context, how stopMethod) error {
	var errs []error
	for _, f := range e.fleets() {
		errs = append(errs, f.end(ctx, e.applyLimit, how))
	}
	for _, ct := range e.conntrack {
		errs = append(errs, ct.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(e.stateDir))...)
}

// enterCommands describes how to enter each namespace from outside the sandbox.
func (e *environment) enterCommands() []string {
	var out []string
	add := func(ns *netns.NS) {
		out = append(out, fmt.Sprintf("%-8s %s nsenter --net=/proc/%d/fd/%d", ns.Name(), sandbox.EnterCommand(), os.Getpid(),
			ns.Fd()))
	}
	for _, n := range e.Lab().Nodes() {
		add(n.NS)
	}
	add(e.Lab().Client().NS)
	return out
}

// names maps every address of the lab to its host's name in the scenario. It reads the nodes' addresses from the
// kernel, because bridges, tunnels and proxiers add addresses.
func (e *environment) names(namespace string) (map[netip.Addr]string, error) {
	names := map[netip.Addr]string{}
	l := e.Lab()
	add := func(name string, addrs []netip.Addr) {
		for _, a := range addrs {
			names[a] = name
		}
	}
	for _, p := range l.Pods() {
		add(shortName(namespace, p.Name()), p.Addrs())
	}
	for _, n := range l.Nodes() {
		addrs, err := n.LocalAddrs()
		if err != nil {
			return nil, err
		}
		add(n.Name(), addrs)
	}
	add("client", l.Client().Addrs())
	add("router", l.Router().Addrs())
	return names, nil
}

// programs returns the names of the proxier and of the enforcer, which is empty if there is none.
func (e *environment) programs() (proxier, enforcer string) {
	if e.enforcer != nil {
		enforcer = e.enforcer.program.Name()
	}
	return e.proxier.program.Name(), enforcer
}
