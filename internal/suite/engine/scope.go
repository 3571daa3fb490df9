// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// scope is a scenario's part of a cluster: its namespaces, and the objects and hosts that it can name.
type scope struct {
	env       *environment
	namespace string

	mu          sync.Mutex
	lastSeen    map[string]*corev1.Service // as they were when their addresses were last resolved
	servers     []*traffic.Server          // on hosts that are not pods
	others      []string                   // further namespaces that the scenario has made
	revision    uint64                     // newest revision of the cluster that newest has read
	ownRevision uint64                     // newest revision that the scenario has to wait for
}

func (s *scope) Lab() *lab.Lab             { return s.env.Lab() }
func (s *scope) Store() *store.Store       { return s.env.Store() }
func (s *scope) Namespace() string         { return s.namespace }
func (s *scope) Features() spec.FeatureSet { return s.env.declared }

// recordNamespaces records the namespaces among the objects as the scenario's own.
func (s *scope) recordNamespaces(objects []store.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		if ns, ok := o.(*corev1.Namespace); ok && !slices.Contains(s.namespacesLocked(), ns.Name) {
			s.others = append(s.others, ns.Name)
		}
	}
}

// namespaces returns all namespaces of the scenario, the first one first.
func (s *scope) namespaces() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespacesLocked()
}

func (s *scope) namespacesLocked() []string { return append([]string{s.namespace}, s.others...) }

// podName returns the lab's name of a pod. In the scenario, the namespace is left out if it is the first one.
func (s *scope) podName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return s.namespace + "/" + name
}

// shortName returns a host's name in the scenario of the namespace: its own pods without their namespace.
func shortName(namespace, name string) string { return strings.TrimPrefix(name, namespace+"/") }

func (s *scope) Host(name string) (*lab.Host, error) {
	l := s.Lab()
	if n := l.Node(name); n != nil {
		return &n.Host, nil
	}
	if p := l.Pod(s.podName(name)); p != nil {
		return &p.Host, nil
	}
	switch name {
	case "client":
		return l.Client(), nil
	case "router":
		return l.Router(), nil
	}
	return nil, spec.HarnessErrorf("there is no host %q: neither a node, nor a pod of this scenario, nor client or "+
		"router", name)
}

// nodeOf returns the name of a node, or of a pod's node. It is empty for a host outside the cluster.
func (s *scope) nodeOf(h *lab.Host) string {
	if p := s.Lab().Pod(h.Name()); p != nil {
		return p.Node().Name()
	}
	if n := s.Lab().Node(h.Name()); n != nil {
		return n.Name()
	}
	return ""
}

func (s *scope) Server(pod string) (*traffic.Server, error) {
	namespace, name, _ := strings.Cut(s.podName(pod), "/")
	if server := s.env.Server(namespace, name); server != nil {
		return server, nil
	}
	return nil, spec.HarnessErrorf("pod %q serves nothing", pod)
}

// allServers returns the servers of all pods, and those on other hosts.
func (s *scope) allServers() []*traffic.Server {
	var out []*traffic.Server
	for _, ns := range s.namespaces() {
		out = append(out, s.env.Servers(ns)...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(out, s.servers...)
}

func (s *scope) Flows(ctx context.Context, node string, keep func(observe.Flow) bool) ([]observe.Flow, error) {
	ct := s.env.conntrack[node]
	if ct == nil {
		return nil, spec.HarnessErrorf("%q is not a node", node)
	}
	flows, err := ct.Flows(ctx, keep)
	if err != nil {
		return nil, &spec.HarnessError{Err: err}
	}
	return flows, nil
}

func (s *scope) Flow(node, proto string, orig observe.Tuple) (observe.Flow, bool, error) {
	ct := s.env.conntrack[node]
	if ct == nil {
		return observe.Flow{}, false, spec.HarnessErrorf("%q is not a node", node)
	}
	flow, ok, err := ct.Flow(proto, orig)
	if err != nil {
		return observe.Flow{}, false, &spec.HarnessError{Err: err}
	}
	return flow, ok, nil
}

// facts returns the facts for Row.Judge.
func (s *scope) facts() (spec.Facts, error) {
	names, err := s.env.names(s.namespace)
	if err != nil {
		return spec.Facts{}, &spec.HarnessError{Err: err}
	}
	var nodes []string
	for _, n := range s.Lab().Nodes() {
		nodes = append(nodes, n.Name())
	}
	return spec.Facts{
		Names: names, Nodes: nodes,
		Egress: func(node string, to netip.Addr) netip.Addr { return s.Lab().Node(node).EgressAddr(to) },
	}, nil
}
