// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/spec"
)

// packets plays the cases of cyclonus that change pods or namespaces, each in a cluster of its own with each enforcer.
// After each step it sends packets from every pod to every pod. It reports whether packets and verdicts agree.
func packets(ctx context.Context) (agree bool, err error) {
	o, err := start(ctx)
	if err != nil {
		return false, err
	}
	agree = true
	for _, stack := range []lab.Stack{lab.IPv4, lab.IPv6} {
		steps, err := casesOf(ctx, stack)
		if err != nil {
			return false, errors.Join(err, o.stop())
		}
		cases := changing(steps)
		for _, e := range proxiers.Enforcers() {
			p := player{oracles: o, stack: stack}
			for _, c := range cases {
				if err := p.play(ctx, e, c); err != nil {
					return false, errors.Join(fmt.Errorf("%s: %s, %s: %w", c[0].name(), e.Name(), stack, err), o.stop())
				}
			}
			fmt.Printf("%s, %s: %d steps of %d cases that change pods or namespaces, %d connections, %d differences\n",
				e.Name(), stack, p.steps, len(cases), p.connections, len(p.differences))
			for _, d := range p.differences {
				fmt.Println(" ", d)
			}
			agree = agree && len(p.differences) == 0 && p.steps > 0
		}
	}
	return agree, o.stop()
}

// changing returns the steps of each case that has a step with other pods or namespaces than all cases begin with.
func changing(steps []step) (cases [][]step) {
	for len(steps) > 0 {
		first := steps[0]
		end := slices.IndexFunc(steps, func(s step) bool { return s.Case != first.Case })
		if end < 0 {
			end = len(steps)
		}
		if slices.ContainsFunc(steps[:end], func(s step) bool { return !s.onGrid(first) }) {
			cases = append(cases, steps[:end])
		}
		steps = steps[end:]
	}
	return cases
}

// player plays cases and compares.
type player struct {
	*oracles
	stack lab.Stack

	steps, connections int
	differences        []string
}

// play plays a case.
func (p *player) play(ctx context.Context, enforcer spec.Proxier, steps []step) (err error) {
	topology := lab.Topology{Stack: p.stack, PodNetwork: lab.Routed,
		Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}}
	c, err := cluster.New(ctx, topology)
	if err != nil {
		return err
	}
	proxier, err := proxiers.Find("iptables")
	if err != nil {
		return errors.Join(err, c.Close())
	}
	s, err := engine.Stand(ctx, c, engine.Options{Enforcer: enforcer}, proxier[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	for _, x := range steps {
		if err := x.realize(ctx, c); err != nil {
			return err
		}
		if err := s.Settle(ctx); err != nil {
			return err
		}
		if err := p.ask(ctx, c, x, enforcer.Name()); err != nil {
			return err
		}
	}
	return nil
}

// realize makes the cluster that of the step.
func (s step) realize(ctx context.Context, c *cluster.Cluster) error {
	former := c.Store().Snapshot()
	err := c.Store().Do(func(tx *store.Tx) error {
		var errs []error
		for _, x := range former.NetworkPolicies {
			errs = append(errs, tx.Delete(store.KindNetworkPolicy, x.Namespace, x.Name))
		}
		for name, labels := range s.Cluster.Namespaces {
			errs = append(errs, tx.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
		}
		for _, x := range former.Pods {
			if !slices.ContainsFunc(s.Cluster.Pods, func(p *oracle.Pod) bool {
				return p.Namespace == x.Namespace && p.Name == x.Name
			}) {
				errs = append(errs, tx.Delete(store.KindPod, x.Namespace, x.Name))
			}
		}
		for i, x := range s.Cluster.Pods {
			errs = append(errs, place(tx, former, x, fmt.Sprintf("n%d", i%3+1)))
		}
		for _, x := range s.Cluster.Policies {
			errs = append(errs, tx.Apply(x.DeepCopy()))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	for _, n := range former.Namespaces {
		if err := c.WaitPods(ctx, n.Name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Cluster.Namespaces)) {
		if err := c.WaitPods(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// place creates a pod on a node, or gives a pod that is there other labels.
func place(tx *store.Tx, former *store.Snapshot, p *oracle.Pod, node string) error {
	same := func(o *corev1.Pod) bool { return o.Namespace == p.Namespace && o.Name == p.Name }
	if slices.ContainsFunc(former.Pods, same) {
		return store.Update(tx, p.Namespace, p.Name, func(o *corev1.Pod) { o.Labels = p.Labels })
	}
	return tx.Apply(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "all", Image: cluster.PauseImage,
			Ports: p.Ports}}},
	})
}

// ask sends a packet for each connection, and compares with both verdicts.
func (p *player) ask(ctx context.Context, c *cluster.Cluster, s step, enforcer string) error {
	q := question{name: s.name(), Cluster: oracle.FromSnapshot(c.Store().Snapshot()), Ports: netpol.Ports}
	if got, want := labelsOf(q.Cluster), labelsOf(&s.Cluster); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("step %d: the pods and their labels are %v, want %v", s.Step, got, want)
	}
	theirs, err := p.answer(q)
	if err != nil {
		return err
	}
	hits, err := fire(ctx, c, q)
	if err != nil {
		return err
	}
	expected := expect(q.Cluster, quirks)
	flows := q.flows()
	for i, f := range flows {
		target := i / len(q.Ports) % len(q.Cluster.Pods)
		open := hits[i].Outcome == traffic.Reply && hits[i].Target == target
		blocked := hits[i].Outcome != traffic.Reply
		says, ours := theirs.Allowed[i] == '1', q.Cluster.Allows(f.Flow)
		if says != expected(f.Flow) || open != ours || blocked == ours {
			p.differences = append(p.differences, fmt.Sprintf("%s (%s), %s: %s: allowed by cyclonus %t, by viplab %t, "+
				"packet: %v", q.name, s.Given, enforcer, f, says, ours, hits[i].Outcome))
		}
	}
	p.steps, p.connections = p.steps+1, p.connections+len(flows)
	return nil
}

// labelsOf returns the labels of all pods.
func labelsOf(c *oracle.Cluster) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, p := range c.Pods {
		all[p.Namespace+"/"+p.Name] = p.Labels
	}
	return all
}

// fire sends the packets of a question, in the order of its flows.
func fire(ctx context.Context, c *cluster.Cluster, q question) (hits []traffic.Hit, err error) {
	var ports []traffic.Port
	for _, x := range q.Ports {
		ports = append(ports, traffic.Port{Proto: protocol(x), Number: uint16(x.Number)})
	}
	var targets []traffic.Target
	for _, x := range q.Cluster.Pods {
		targets = append(targets, traffic.Target{NS: c.Lab().Pod(x.Namespace + "/" + x.Name).NS, Addrs: x.Addrs[:1],
			Ports: ports})
	}
	var fences []netip.Addr
	for _, n := range c.Lab().Nodes() {
		fences = append(fences, n.Addr(lab.FamilyOf(q.Cluster.Pods[0].Addrs[0])))
	}
	v, err := traffic.NewVolley(targets, c.Lab().Client().NS, fences)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	var shots []traffic.Shot
	for _, from := range targets {
		for _, to := range targets {
			for _, x := range q.Ports {
				shots = append(shots, traffic.Shot{From: from.NS, To: netip.AddrPortFrom(to.Addrs[0], uint16(x.Number)),
					Proto: protocol(x)})
			}
		}
	}
	return v.Fire(ctx, shots)
}

func protocol(p netpol.Port) string { return strings.ToLower(string(p.Protocol)) }
