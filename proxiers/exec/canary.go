// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// CanaryNamespace is the Kubernetes namespace of the canaries.
const CanaryNamespace = "viplab-canary"

// canaryPort is the port of the canaries' server: the echo port of RFC 862. No proxier, NodePort or probe uses it.
const canaryPort = 7

// canaries are Services that show how far a process has converged in one cluster. Each generation is one Service. It is
// created when a node has to confirm a change, and shared by all nodes that confirm one at that time. The Service's
// port is the generation's number, so that two generations with the same address are never confused.
type canaries struct {
	store *store.Store

	mu      sync.Mutex
	servers []canaryServer // of the nodes that have joined
	number  int
	alive   []*generation // the generations in use, and the newest
	scanned uint64        // the revision up to which changed is known
	changed uint64        // of the newest object that a program may have to program and that is no canary
}

// generation is one canary.
type generation struct {
	number   int
	revision uint64 // of the Service; its Endpoints are newer
	targets  []netip.AddrPort
	users    int
}

// canaryServer answers for canaries.
type canaryServer struct {
	*traffic.Server
	node  string
	addrs []netip.Addr
}

// newCanaries makes the canaries' namespace.
//
// Rules for earlier canaries of the store may still be in the kernel, where they answer. Each generation takes at least
// one revision of the store, so numbers from its revision on are new.
func newCanaries(s *store.Store) (*canaries, error) {
	c := &canaries{store: s, number: int(s.Snapshot().Revision)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: CanaryNamespace}}
	if err := s.Apply(ns); err != nil {
		return nil, spec.HarnessErrorf("make the canaries' namespace: %w", err)
	}
	return c, nil
}

// serve starts the server of a node, which listens until the cluster is closed. It listens on the node's own addresses,
// because a node exists before any pod.
func (c *canaries) serve(node spec.Node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.servers, func(s canaryServer) bool { return s.node == node.Name }) {
		return nil
	}
	s := canaryServer{node: node.Name}
	for _, f := range node.Families {
		s.addrs = append(s.addrs, node.Host.Addr(f))
	}
	var err error
	port := traffic.Port{Proto: "tcp", Number: canaryPort}
	if s.Server, err = traffic.Serve(node.Host.NS, CanaryNamespace, s.addrs, port); err != nil {
		return spec.HarnessErrorf("serve canaries: %w", err)
	}
	c.servers = append(c.servers, s)
	return nil
}

func (c *canaries) close() error {
	err := c.store.Delete(store.KindNamespace, "", CanaryNamespace)
	for _, s := range c.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// acquire returns a generation that is newer than a revision and than the generation numbered older: the newest one, or
// else a new one. The caller releases it.
func (c *canaries) acquire(revision uint64, older int) (g *generation, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.alive); n > 0 {
		g = c.alive[n-1]
	}
	if g == nil || g.revision <= revision || g.number <= older {
		if g, err = c.make(); err != nil {
			return nil, spec.HarnessErrorf("make a canary: %w", err)
		}
	}
	g.users++
	return g, nil
}

func (c *canaries) release(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.users--
}

// newest returns the number of the newest generation.
func (c *canaries) newest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number
}

// unchangedSince returns the revision since which a state has been the same, except for canaries and kinds of objects
// that such programs do not program.
func (c *canaries) unchangedSince(state *store.Snapshot) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state.Revision > c.scanned {
		events, err := c.store.EventsSince(c.scanned)
		if err != nil { // the history no longer contains the revision
			c.changed = state.Revision
		}
		for _, e := range events {
			if e.Revision <= state.Revision && programmed(e) {
				c.changed = e.Revision
			}
		}
		c.scanned = state.Revision
	}
	return min(c.changed, state.Revision)
}

// programmed reports whether a program may have to program a change, which is no canary.
func programmed(e store.Event) bool {
	switch e.Kind {
	case store.KindService, store.KindEndpoints, store.KindEndpointSlice, store.KindNode, store.KindNetworkPolicy:
		return e.Object.GetNamespace() != CanaryNamespace
	default:
		return false
	}
}

// make adds a generation and removes those without users, in one transaction of the store.
func (c *canaries) make() (*generation, error) {
	g := &generation{number: c.number + 1}
	unused := func(g *generation) bool { return g.users == 0 }
	err := c.store.Do(func(tx *store.Tx) error {
		for _, old := range c.alive {
			if !unused(old) {
				continue
			}
			if err := errors.Join(tx.Delete(store.KindService, CanaryNamespace, old.name()),
				tx.Delete(store.KindEndpoints, CanaryNamespace, old.name())); err != nil {
				return err
			}
		}
		return tx.Apply(c.service(g), c.endpoints(g))
	})
	if err != nil {
		return nil, err
	}
	svc, ok := store.Get[*corev1.Service](c.store, CanaryNamespace, g.name())
	if !ok {
		return nil, fmt.Errorf("Service %s/%s has vanished", CanaryNamespace, g.name())
	}
	if g.revision, err = strconv.ParseUint(svc.ResourceVersion, 10, 64); err != nil {
		return nil, err
	}
	for _, ip := range svc.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, err
		}
		g.targets = append(g.targets, netip.AddrPortFrom(addr, g.port()))
	}
	c.number = g.number
	c.alive = append(slices.DeleteFunc(c.alive, unused), g)
	return g, nil
}

func (g *generation) name() string { return fmt.Sprintf("canary-%d", g.number) }

// port returns an unprivileged port. Successive generations get successive ports.
func (g *generation) port() uint16 { return uint16(1024 + g.number%(1<<16-1024)) }

// service returns the generation's Service. It has no selector: endpoints lists its endpoints.
func (c *canaries) service(g *generation) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: CanaryNamespace, Name: g.name()},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports:          []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: int32(g.port())}},
		},
	}
}

// endpoints returns an Endpoints object, because some proxiers know no EndpointSlices. The cluster mirrors it into
// slices. Every node that has joined has one, because a scenario or a program may cut a node off.
func (c *canaries) endpoints(g *generation) *corev1.Endpoints {
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: canaryPort}}}
	for _, s := range c.servers {
		for _, a := range s.addrs {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a.String(), NodeName: &s.node})
		}
	}
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: CanaryNamespace, Name: g.name()},
		Subsets:    []corev1.EndpointSubset{subset},
	}
}

// ask connects from a node to a canary in every family of the node that has not answered before, and adds those that
// answer. It returns the error of the first that does not. A proxier may try the nodes' servers in turn, and one may be
// out of reach, so that the families never answer at the same time.
func (g *generation) ask(ctx context.Context, node spec.Node, probe traffic.Probe, answered *[]lab.Family) error {
	var silent *silentError
	for _, to := range g.targets {
		f := lab.FamilyOf(to.Addr())
		if !slices.Contains(node.Families, f) || slices.Contains(*answered, f) {
			continue
		}
		probe.From, probe.To, probe.Proto = node.Host.NS, to, "tcp"
		probe.Fences = []netip.Addr{node.Host.Addr(f)}
		answer := probe.Do(ctx)
		switch {
		case answer.Fault != nil && ctx.Err() == nil:
			return &spec.HarnessError{Err: answer.Fault}
		case answer.Outcome == traffic.Reply && answer.Server == CanaryNamespace:
			*answered = append(*answered, f)
		case silent == nil:
			silent = &silentError{node: node.Name, canary: to, answer: answer}
		}
	}
	if silent == nil {
		return nil
	}
	if len(*answered) > 0 {
		silent.only = (*answered)[0]
	}
	return silent
}

// silentError names the canary that does not answer.
type silentError struct {
	node   string
	canary netip.AddrPort
	answer traffic.Answer
	only   lab.Family // the family whose canary answered; zero if none did
}

func (e *silentError) Error() string {
	text := fmt.Sprintf("viplab's own Service %s on %s is %s", e.canary, e.node, e.answer)
	if e.only != 0 {
		text += fmt.Sprintf("; it serves IP%s: if it serves no other family, judge it with --ip %d", e.only, e.only)
	}
	return text
}

// sameList reports whether two lists hold the same objects, except for canaries. It compares pointers, because objects
// are immutable.
func sameList[T interface {
	comparable
	GetNamespace() string
}](a, b []T) bool {
	canary := func(o T) bool { return o.GetNamespace() == CanaryNamespace }
	return slices.Equal(slices.DeleteFunc(slices.Clone(a), canary), slices.DeleteFunc(slices.Clone(b), canary))
}
