// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Builder computes the States of one node and IP family from successive snapshots. It is not safe for concurrent use.
type Builder struct {
	// NoExternalIPs ignores spec.externalIPs. Set it before the first Build.
	NoExternalIPs bool

	node   string
	family lab.Family

	last     *store.Snapshot
	zone     string
	slicesOf map[key][]*discoveryv1.EndpointSlice
	objects  map[key]*corev1.Service
	state    *State
}

// key is the namespace and the name of an object.
type key struct{ namespace, name string }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// NewBuilder returns a Builder for the named node and the family.
func NewBuilder(node string, family lab.Family) *Builder {
	return &Builder{
		node:     node,
		family:   family,
		last:     &store.Snapshot{},
		slicesOf: map[key][]*discoveryv1.EndpointSlice{},
		objects:  map[key]*corev1.Service{},
		state:    &State{},
	}
}

// Build returns the state for a snapshot. It compares the snapshot with the last one by pointers and recomputes only
// what a changed object affects. If the result is unchanged, it returns the same *State.
func (b *Builder) Build(s *store.Snapshot) *State {
	dirty := map[key]bool{}
	b.updateServices(s, dirty)
	b.updateSlices(s, dirty)
	if zone := zoneOf(s.Nodes, b.node); zone != b.zone {
		b.zone = zone
		for k := range b.objects {
			dirty[k] = true
		}
	}
	b.last = s
	b.recompute(dirty)
	return b.state
}

func (b *Builder) updateServices(s *store.Snapshot, dirty map[key]bool) {
	gone, come := diff(b.last.Services, s.Services, compareObjects)
	for _, o := range gone {
		k := key{o.Namespace, o.Name}
		delete(b.objects, k)
		dirty[k] = true
	}
	for _, o := range come {
		k := key{o.Namespace, o.Name}
		b.objects[k] = o
		dirty[k] = true
	}
}

func (b *Builder) updateSlices(s *store.Snapshot, dirty map[key]bool) {
	gone, come := diff(b.last.EndpointSlices, s.EndpointSlices, compareObjects)
	for _, o := range gone {
		if k, ok := serviceOf(o); ok {
			b.slicesOf[k] = slices.DeleteFunc(b.slicesOf[k], func(s *discoveryv1.EndpointSlice) bool { return s == o })
			if len(b.slicesOf[k]) == 0 {
				delete(b.slicesOf, k)
			}
			dirty[k] = true
		}
	}
	for _, o := range come {
		if k, ok := serviceOf(o); ok {
			b.slicesOf[k] = append(b.slicesOf[k], o)
			dirty[k] = true
		}
	}
}

// recompute replaces the Services with the given keys in the state. A Service whose new value is equal keeps its
// pointer.
func (b *Builder) recompute(dirty map[key]bool) {
	keys := slices.SortedFunc(maps.Keys(dirty), key.compare)
	old := b.state.Services
	merged := make([]*Service, 0, len(old)+len(keys))
	changed := false
	for _, k := range keys {
		for len(old) > 0 && k.compare(keyOf(old[0])) > 0 {
			merged = append(merged, old[0])
			old = old[1:]
		}
		var before *Service
		if len(old) > 0 && keyOf(old[0]) == k {
			before, old = old[0], old[1:]
		}
		after := b.service(k)
		if before != nil && after != nil && reflect.DeepEqual(before, after) {
			after = before
		}
		changed = changed || before != after
		if after != nil {
			merged = append(merged, after)
		}
	}
	if changed {
		b.state = &State{Services: append(merged, old...)}
	}
}

// service computes one Service. It returns nil if this family has nothing to serve for it.
func (b *Builder) service(k key) *Service {
	s := serviceFrom(b.objects[k], b.family)
	if s == nil {
		return nil
	}
	if b.NoExternalIPs {
		for _, p := range s.Ports {
			p.ExternalIPs = nil
		}
	}
	found := collect(b.slicesOf[k], b.family, b.node)
	for _, p := range s.Ports {
		assign(p, found[portKey{p.ID.Port, p.ID.Protocol}], b.node, b.zone)
	}
	if s.Health != nil {
		s.Health.LocalEndpoints = countLocal(found)
	}
	return s
}

func keyOf(s *Service) key { return key{s.Namespace, s.Name} }

func compareObjects[T metav1.Object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// zoneOf returns the zone of a node, or "" if the node is unknown or has no zone.
func zoneOf(nodes []*corev1.Node, name string) string {
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return ""
	}
	return nodes[i].Labels[corev1.LabelTopologyZone]
}
