// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Options say what to build.
type Options struct {
	Stack      lab.Stack
	PodNetwork lab.PodNetwork
	Overlay    lab.Overlay
	Placement  Placement
	NamedPorts NamedPorts
	// Proxier, if not nil, serves Services beside the enforcer, and tables are fired through a Service for each pod as
	// well.
	Proxier spec.Proxier
	// Patience is how long an enforcer may take to obey that does not tell when it does, on a machine of usual
	// speed. None: it obeys when it has been told.
	Patience time.Duration
	// Misread is how the API is read wrongly on the way to the enforcers. Nil: rightly.
	Misread *misread.Reading
}

// Bench is the grid as a cluster, with an enforcer on every node.
type Bench struct {
	options   Options
	cluster   *cluster.Cluster
	old       legacy
	view      *store.Store // the cluster's state as enforcers are told of it
	enforcer  spec.Proxier
	instances []spec.Instance
	states    []string // folders of programs
	volleys   map[lab.Family]*traffic.Volley
	services  services
	evidence  evidence
	tracked   []*observe.Conntrack // what every node knows of connections
	applied   int                  // cases
}

// NewBench builds it.
func NewBench(ctx context.Context, enforcer spec.Proxier, o Options) (b *Bench, err error) {
	c, err := cluster.New(ctx, lab.Topology{Nodes: nodes, Stack: o.Stack, PodNetwork: o.PodNetwork, Overlay: o.Overlay})
	if err != nil {
		return nil, err
	}
	b = &Bench{options: o, cluster: c, old: legacy{}, enforcer: enforcer, volleys: map[lab.Family]*traffic.Volley{}}
	b.view = c.Store().View(b.old.see)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(ctx))
			b = nil
		}
	}()
	for _, step := range []func(context.Context) error{b.startPods, b.serve, b.listen, b.place, b.gather, b.control} {
		if err := step(ctx); err != nil {
			return b, err
		}
	}
	return b, nil
}

// startPods starts the pods in an order in which they get their planned addresses: each node's, one after the other.
func (b *Bench) startPods(ctx context.Context) error {
	store := b.cluster.Store()
	if err := store.Apply(namespaceObjects()...); err != nil {
		return err
	}
	left := slices.Clone(Pods)
	for len(left) > 0 {
		used := map[string]bool{}
		var later []string
		for _, pod := range left {
			i := slices.Index(Pods, pod)
			node := b.options.Placement.node(i)
			if used[node] {
				later = append(later, pod)
				continue
			}
			used[node] = true
			if err := store.Apply(podObject(pod, node, b.options.NamedPorts[pod])); err != nil {
				return err
			}
		}
		for _, namespace := range Namespaces {
			if err := b.cluster.WaitPods(ctx, namespace); err != nil {
				return err
			}
		}
		left = later
	}
	for i, pod := range Pods {
		if want, got := b.options.Placement.planned(i, b.options.Stack),
			b.cluster.Lab().Pod(pod).Addrs(); !slices.Equal(want, got) {
			return fmt.Errorf("pod %s has the addresses %v, not %v as cases have it", pod, got, want)
		}
	}
	return nil
}

// listen makes the pods answer.
func (b *Bench) listen(context.Context) error {
	l := b.cluster.Lab()
	for _, f := range b.options.Stack.Families() {
		var targets []traffic.Target
		for _, pod := range Pods {
			p := l.Pod(pod)
			targets = append(targets, traffic.Target{NS: p.NS, Addrs: []netip.Addr{p.Addr(f)}, Ports: targetPorts()})
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
	}
	return nil
}

func targetPorts() []traffic.Port {
	var out []traffic.Port
	for _, p := range Ports {
		out = append(out, traffic.Port{Proto: protoOf(p), Number: uint16(p.Number)})
	}
	return out
}

// forget makes the nodes forget the connections of former cases, every now and then: a volley ends without a packet, so
// that they would be taken for alive, and a node can know only so many. That takes time, but less than policies do.
func (b *Bench) forget() error {
	const often = 16 // cases, of some hundred connections in each family
	if b.applied++; b.applied%often != 0 {
		return nil
	}
	var errs []error
	for _, c := range b.tracked {
		errs = append(errs, c.Flush())
	}
	return errors.Join(errs...)
}

// Apply makes the policies of a case the only ones, and returns when every node obeys them.
func (b *Bench) Apply(ctx context.Context, c Case) (*oracle.Cluster, error) {
	return b.apply(ctx, c, b.options.Misread)
}

// apply gives the enforcers what a reading takes the policies of the case for, and the caller what they are.
func (b *Bench) apply(ctx context.Context, c Case, reading *misread.Reading) (*oracle.Cluster, error) {
	clear(b.old)
	told := translated(c.Policies, b.options.Stack)
	if reading != nil {
		pods := oracle.FromSnapshot(b.view.Snapshot())
		pods.Policies = nil
		told = reading.Policies(pods, told)
	}
	former := b.cluster.Store().Snapshot().NetworkPolicies
	err := b.cluster.Store().Do(func(tx *store.Tx) error {
		for _, p := range former {
			if err := tx.Delete(store.KindNetworkPolicy, p.Namespace, p.Name); err != nil {
				return err
			}
		}
		for _, p := range told {
			if err := tx.Apply(b.old.admissible(p)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	snapshot := b.view.Snapshot()
	errs := make([]error, len(b.instances))
	var all sync.WaitGroup
	var forgot error
	all.Go(func() { forgot = b.forget() })
	for i, in := range b.instances {
		all.Go(func() {
			if err := in.Apply(ctx, snapshot); err != nil {
				errs[i] = &ApplyError{nodes[i].Name, err}
			}
		})
	}
	judged, err := oracle.FromSnapshot(snapshot), error(nil)
	if reading != nil {
		c.NamedPorts = b.options.NamedPorts
		judged, err = c.judgeAt(b.options.Placement, b.options.Stack)
	}
	all.Wait()
	return judged, errors.Join(append(errs, err, forgot)...)
}

// ApplyError is an enforcer's failure to take policies.
type ApplyError struct {
	Node string
	Err  error
}

func (e *ApplyError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.Node, notApplied, e.Err)
}

const notApplied = "the policies were not applied"

// Refusal is why a case has failed if that was because the enforcer has not taken its policies. Otherwise it is empty.
func Refusal(r report.Result) string {
	if strings.Contains(r.Reason, notApplied) {
		return r.Reason
	}
	return ""
}

// Unwrap is what the enforcer said.
func (e *ApplyError) Unwrap() error { return e.Err }

// Close takes everything down.
func (b *Bench) Close(ctx context.Context) error {
	var errs []error
	for _, in := range b.instances {
		errs = append(errs, in.Stop(ctx))
	}
	errs = append(errs, b.services.stop(ctx))
	if b.evidence != nil {
		errs = append(errs, b.evidence.close())
	}
	for _, c := range b.tracked {
		errs = append(errs, c.Close())
	}
	for _, v := range b.volleys {
		errs = append(errs, v.Close())
	}
	for _, folder := range b.states {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(append(errs, b.cluster.Close())...)
}

// ns is the namespace of a pod, by its number in Pods.
func (b *Bench) ns(pod int) *netns.NS { return b.cluster.Lab().Pod(Pods[pod]).NS }
