// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Options configure a bench.
type Options struct {
	Stack      lab.Stack
	PodNetwork lab.PodNetwork
	Overlay    lab.Overlay
	NamedPorts NamedPorts
	// Proxier, if not nil, serves Services beside the enforcer. Each table is then also fired through a Service for
	// each pod.
	Proxier spec.Proxier
	// Patience is how long an enforcer may take to converge after Apply, on a machine of usual speed. Zero means that
	// the enforcer has converged when Apply returns.
	Patience time.Duration
	// Misreading changes the policies that the enforcers get. Nil means no change.
	Misreading *misreading.Reading
}

// Bench is the grid as a cluster, with an enforcer on every node.
type Bench struct {
	options    Options
	cluster    *cluster.Cluster
	hostBits   hostBits
	view       *store.Store // the cluster's state as enforcers see it
	enforcer   spec.Proxier
	instances  []spec.Instance // of the enforcer
	volleys    map[lab.Family]*traffic.Volley
	clusterIPs map[lab.Family][]netip.Addr // of the pods' Services, in the order of Pods
	evidence   evidence
	conntracks []*observe.Conntrack // of all nodes
	applied    int                  // cases
	closers    []func(context.Context) error
}

// NewBench builds the cluster and starts the enforcer on every node.
func NewBench(ctx context.Context, enforcer spec.Proxier, o Options) (*Bench, error) {
	c, err := cluster.New(ctx, lab.Topology{Nodes: nodes, Stack: o.Stack, PodNetwork: o.PodNetwork, Overlay: o.Overlay})
	if err != nil {
		return nil, err
	}
	b := &Bench{options: o, cluster: c, hostBits: hostBits{}, enforcer: enforcer,
		volleys: map[lab.Family]*traffic.Volley{}, clusterIPs: map[lab.Family][]netip.Addr{}}
	b.view = c.Store().View(b.hostBits.restore)
	b.closing(c.Close)
	for _, step := range []func(context.Context) error{
		b.startPods, b.startProxier, b.startServers, b.startEnforcer, b.startEvidence, b.checkAllOpen,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
	}
	return b, nil
}

// closing adds a function that Close calls, before all functions that were added earlier.
func (b *Bench) closing(f func() error) {
	b.closers = append(b.closers, func(context.Context) error { return f() })
}

// Close stops the enforcers and removes the cluster. Once the context has ended, it kills the enforcers: one that
// ignores SIGTERM would hold an interrupted run.
func (b *Bench) Close(ctx context.Context) error {
	var err error
	for _, f := range slices.Backward(b.closers) {
		err = errors.Join(err, f(ctx))
	}
	return err
}

// startPods starts the pods in the order that gives them their planned addresses: one on each node at a time.
func (b *Bench) startPods(ctx context.Context) error {
	if err := b.cluster.Store().Apply(namespaceObjects()...); err != nil {
		return err
	}
	for nth := range podsPerNode {
		for node := range nodes {
			pod := Pods[node*podsPerNode+nth]
			object := podObject(pod, nodes[node].Name, b.options.NamedPorts[pod])
			if err := b.cluster.Store().Apply(object); err != nil {
				return err
			}
		}
		for _, namespace := range Namespaces {
			if err := b.cluster.WaitPods(ctx, namespace); err != nil {
				return err
			}
		}
	}
	for i, pod := range Pods {
		want, got := plannedAddrs(i, b.options.Stack), b.cluster.Lab().Pod(pod).Addrs()
		if !slices.Equal(want, got) {
			return fmt.Errorf("pod %s has the addresses %v, but cases expect %v", pod, got, want)
		}
	}
	return nil
}

func (b *Bench) startServers(context.Context) error {
	l := b.cluster.Lab()
	var ports []traffic.Port
	for _, p := range Ports {
		ports = append(ports, traffic.Port{Proto: protoOf(p), Number: uint16(p.Number)})
	}
	for _, f := range b.options.Stack.Families() {
		var targets []traffic.Target
		for _, pod := range Pods {
			p := l.Pod(pod)
			targets = append(targets, traffic.Target{NS: p.NS, Addrs: []netip.Addr{p.Addr(f)}, Ports: ports})
		}
		var fences []netip.Addr
		for _, n := range l.Nodes() {
			fences = append(fences, n.Addr(f))
		}
		v, err := traffic.NewVolley(targets, l.Client().NS, fences)
		if err != nil {
			return err
		}
		b.volleys[f] = v
		b.closing(v.Close)
	}
	return nil
}

func (b *Bench) startEnforcer(ctx context.Context) error {
	for _, n := range b.cluster.Lab().Nodes() {
		in, err := b.start(ctx, b.enforcer, n)
		if err != nil {
			return err
		}
		b.instances = append(b.instances, in)
		conntrack, err := observe.NewConntrack(n.NS)
		if err != nil {
			return err
		}
		b.conntracks = append(b.conntracks, conntrack)
		b.closing(conntrack.Close)
	}
	return nil
}

func (b *Bench) start(ctx context.Context, p spec.Proxier, n *lab.Node) (spec.Instance, error) {
	state, err := sandbox.TempDir(p.Name() + "-" + n.Name() + "-")
	if err != nil {
		return nil, err
	}
	b.closing(func() error { return os.RemoveAll(state) })
	node := spec.NodeOf(b.cluster.Lab(), n, b.view)
	node.StateDir, node.Log = state, slog.New(slog.DiscardHandler)
	in, err := p.Start(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%s: start %s: %w", n.Name(), p.Name(), err)
	}
	b.closers = append(b.closers, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return in.Kill(context.WithoutCancel(ctx))
		}
		return in.Stop(ctx)
	})
	return in, nil
}

func (b *Bench) startEvidence(context.Context) error {
	if b.enforcer.Features()[spec.PolicyDropLog] {
		var logs dropLog
		for _, n := range b.cluster.Lab().Nodes() {
			l, err := observe.OpenLogGroups(n.NS, groups...)
			if err != nil {
				return err
			}
			b.closing(l.Close)
			logs = append(logs, l)
		}
		b.evidence = logs
		return nil
	}
	var captures crossing
	for i := range Pods {
		c, err := observe.StartCapture(b.ns(i))
		if err != nil {
			return err
		}
		b.closing(c.Close)
		captures = append(captures, c)
	}
	b.evidence = captures
	return nil
}

// checkAllOpen checks that every pod reaches every pod without policies. Only then can a drop be attributed to an
// enforcer that logs no drops.
func (b *Bench) checkAllOpen(ctx context.Context) error {
	if b.enforcer.Features()[spec.PolicyDropLog] {
		return nil
	}
	judge := b.fireTables
	if b.options.Patience > 0 {
		judge = b.fireUntilRight
	}
	verdicts, err := judge(ctx, oracle.FromSnapshot(b.view.Snapshot()))
	if _, wrong := SumUp(verdicts, err); wrong != nil {
		return fmt.Errorf("with %s and without policies, not every pod reaches every pod: %w", b.enforcer.Name(), wrong)
	}
	return nil
}

// apply replaces all policies, changed by the misreading if there is one, and waits until every enforcer has applied
// them.
func (b *Bench) apply(ctx context.Context, policies []*networkingv1.NetworkPolicy, r *misreading.Reading) error {
	policies = forStack(policies, b.options.Stack)
	if r != nil {
		pods := oracle.FromSnapshot(b.view.Snapshot())
		pods.Policies = nil
		policies = r.Policies(pods, policies)
	}
	clear(b.hostBits)
	former := b.cluster.Store().Snapshot().NetworkPolicies
	err := b.cluster.Store().Do(func(tx *store.Tx) error {
		for _, p := range former {
			if err := tx.Delete(store.KindNetworkPolicy, p.Namespace, p.Name); err != nil {
				return err
			}
		}
		for _, p := range policies {
			if err := tx.Apply(b.hostBits.strip(p)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	snapshot := b.view.Snapshot()
	return concurrently(len(b.instances)+1, func(i int) error {
		if i == len(b.instances) {
			return b.flushConntrack()
		}
		if err := b.instances[i].Apply(ctx, snapshot); err != nil {
			return &ApplyError{nodes[i].Name, err}
		}
		return nil
	})
}

// flushConntrack flushes the connections of earlier cases every few cases. A volley closes no
// connection, so entries stay, and a node's table is limited. Flushing takes less time than applying policies.
func (b *Bench) flushConntrack() error {
	const interval = 16 // cases, of a few hundred connections in each family
	if b.applied++; b.applied%interval != 0 {
		return nil
	}
	return concurrently(len(b.conntracks), func(i int) error { return b.conntracks[i].Flush() })
}

// ApplyError is an enforcer's failure to apply policies.
type ApplyError struct {
	Node string
	Err  error
}

func (e *ApplyError) Error() string {
	return fmt.Sprintf("%s: the policies were not applied: %v", e.Node, e.Err)
}

// Unwrap returns the enforcer's error.
func (e *ApplyError) Unwrap() error { return e.Err }

// ns returns the network namespace of a pod, given its number in Pods.
func (b *Bench) ns(pod int) *netns.NS { return b.cluster.Lab().Pod(Pods[pod]).NS }

// concurrently calls f for 0 to n-1 at the same time and joins the errors.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
