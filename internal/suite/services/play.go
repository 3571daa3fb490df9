// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// Playing configures how a case is played.
type Playing struct {
	// Slot is a number that no other case has that shares a cluster at the same time.
	Slot int
	// Suffix is added to the case's ID, so that several versions of it can share a cluster.
	Suffix string
	// Everything asks each kind of question, not a sample, so that a smaller case is not missed by chance.
	Everything bool
	// Coverage, if not nil, counts the answers of the oracle.
	Coverage *Coverage
}

// Scenario returns a scenario that plays the case: for each state, it makes the change, waits until the proxiers have
// converged, and asks questions that the oracle has answered.
func (c Case) Scenario(p Playing) spec.Scenario {
	s := spec.Scenario{
		ID: c.ID + p.Suffix, Group: "random", Priority: spec.P1, Source: "docs/random.md",
		Why: "Connections to Services in a generated state are treated as the API says.",
	}
	var run *player
	for i, state := range c.States {
		var before State
		if i > 0 {
			before = c.States[i-1]
		}
		name := fmt.Sprintf("state %d", i+1)
		if state.Change != "" {
			name += ": " + state.Change
		}
		if state.Life != nil {
			name += "; " + state.Life.String()
			s.Cluster = &spec.ClusterConfig{} // of its own
		}
		s.Steps = append(s.Steps, spec.Step{Name: name, Check: func(ctx context.Context, w spec.World) error {
			if i == 0 {
				run = newPlayer(c, p, w)
				run.route(w)
			}
			if err := run.make(ctx, w, before, state); err != nil {
				return err
			}
			return run.judge(ctx, w)
		}})
	}
	if c.endsAnew(p) {
		s.Steps = append(s.Steps, spec.Step{Name: "the same objects, made anew",
			Check: func(ctx context.Context, w spec.World) error { return run.makeAnew(ctx, w) }})
	}
	return s
}

// route sends the outside client's packets to virtual addresses to a node each.
func (p *player) route(w spec.World) {
	for _, name := range p.c.virtualNames() {
		fixture.RouteTo(w, "client", p.virtual(name, lab.V4).String(), p.virtual(name, lab.V6).String(), via(name))
	}
}

// make changes the cluster from one state to the next. An error that is no HarnessError is the proxier's: it does not
// converge.
func (p *player) make(ctx context.Context, w spec.World, from, to State) error {
	if p.now = to; to.Life != nil {
		p.struck = to.Life.Node
	}
	if err := p.makePods(ctx, w, from, to); err != nil {
		return err
	}
	if err := to.Life.during(ctx, w, func() error { return fault(p.change(ctx, w, from, to)) }); err != nil {
		return err
	}
	if to.Life != nil && to.Life.event().of == "proxier" {
		p.clients = nil // nothing says that a proxier remembers them
		if w.Features()[spec.Relays] {
			p.flows = nil // a relay's connections end with it
		}
	}
	return nil
}

// change makes the changes that wait for nothing.
func (p *player) change(ctx context.Context, w spec.World, from, to State) error {
	if err := p.remove(w, from, to); err != nil {
		return err
	}
	for _, pod := range to.Pods {
		old := find(from.Pods, pod.Name)
		if old != nil && isAnother(old, pod) {
			old = nil
		}
		if err := makePod(ctx, w, old, pod); err != nil {
			return err
		}
	}
	for _, svc := range to.Services {
		if err := p.makeService(w, svc); err != nil {
			return err
		}
	}
	for _, s := range to.Slices {
		for _, one := range p.slices(s) {
			if err := w.Apply(one); err != nil {
				return err
			}
		}
	}
	for _, policy := range to.Policies {
		if err := w.Apply(policy.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// fault makes an error one of the harness.
func fault(err error) error {
	if err == nil {
		return nil
	}
	return &spec.HarnessError{Err: err}
}

// remove deletes the policies, slices and Services that the next state does not have, or has made anew.
func (p *player) remove(w spec.World, from, to State) error {
	for _, name := range missing(from.Policies, to.Policies) {
		if err := w.Store().Delete(store.KindNetworkPolicy, w.Namespace(), name); err != nil {
			return err
		}
	}
	for _, old := range from.Slices {
		if find(to.Slices, old.Name) != nil {
			continue
		}
		for _, f := range p.families {
			if err := w.Store().Delete(store.KindEndpointSlice, w.Namespace(), sliceName(old, f)); err != nil {
				return err
			}
		}
	}
	for _, old := range from.Services {
		if next := find(to.Services, old.Name); next == nil || next.Annotations[made] != old.Annotations[made] {
			if err := w.Store().Delete(store.KindService, w.Namespace(), old.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isAnother reports whether a pod cannot become the other one: it terminates, is on another node, or serves other
// ports.
func isAnother(old, next *corev1.Pod) bool {
	return old.DeletionTimestamp != nil && next.DeletionTimestamp == nil || old.Spec.NodeName != next.Spec.NodeName ||
		!reflect.DeepEqual(old.Spec.Containers, next.Spec.Containers) || !maps.Equal(old.Labels, next.Labels)
}

// makePods removes pods, with the flows that they have opened, and makes new ones. It waits until these run, because
// slices and ranges name their addresses.
func (p *player) makePods(ctx context.Context, w spec.World, from, to State) error {
	for _, old := range from.Pods {
		if next := find(to.Pods, old.Name); next == nil || isAnother(old, next) {
			p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool { return f.from.name == old.Name })
			if err := w.Store().Delete(store.KindPod, w.Namespace(), old.Name); err != nil {
				return fault(err)
			}
		}
	}
	fresh := false
	for _, pod := range to.Pods {
		old := find(from.Pods, pod.Name)
		if old != nil && !isAnother(old, pod) {
			continue
		}
		fresh = true
		bare := pod.DeepCopy()
		bare.DeletionTimestamp, bare.Status = nil, corev1.PodStatus{}
		if err := w.Apply(bare); err != nil {
			return fault(err)
		}
	}
	if !fresh {
		return nil
	}
	return w.Settle(ctx)
}

// makePod makes a pod ready, unready or terminating.
func makePod(ctx context.Context, w spec.World, old, pod *corev1.Pod) error {
	terminates := pod.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil)
	if was := old == nil || ready(old); ready(pod) != was && (ready(pod) || !terminates) {
		if err := fixture.Readiness(pod.Name, ready(pod)).Run(ctx, w); err != nil {
			return err
		}
	}
	if terminates {
		return fixture.Terminate(pod.Name, ready(pod)).Run(ctx, w)
	}
	return nil
}

func (p *player) makeService(w spec.World, in *corev1.Service) error {
	svc := p.service(in)
	p.allocate(w, svc)
	status := svc.Status
	svc.Status = corev1.ServiceStatus{}
	if err := w.Apply(svc); err != nil {
		return err
	}
	return store.UpdateStatus(w.Store(), w.Namespace(), svc.Name, func(s *corev1.Service) { s.Status = status })
}

// find returns the object of a name, or the zero value.
func find[T store.Object](all []T, name string) (found T) {
	for _, o := range all {
		if o.GetName() == name {
			return o
		}
	}
	return found
}

// objects returns what a state is in the cluster: its Services and all EndpointSlices of its namespace.
func objects(w spec.World) (services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice, nodes []*corev1.Node) {
	s := w.Store().Snapshot()
	for _, svc := range s.Services {
		if svc.Namespace == w.Namespace() {
			services = append(services, svc)
		}
	}
	for _, e := range s.EndpointSlices {
		if e.Namespace == w.Namespace() {
			endpoints = append(endpoints, e)
		}
	}
	return services, endpoints, s.Nodes
}

// podAddrs returns the addresses of a pod of the state, none if it has no such pod. A pod that was deleted may run for
// a moment longer.
func (p *player) podAddrs(w spec.World) func(string) []netip.Addr {
	return func(name string) []netip.Addr {
		if find(p.now.Pods, name) == nil {
			return nil
		}
		if p := w.Lab().Pod(w.Namespace() + "/" + name); p != nil {
			return slices.Clone(p.Addrs())
		}
		return nil
	}
}
