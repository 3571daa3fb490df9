// SPDX-License-Identifier: Apache-2.0

package store

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Through is the store as it looks to somebody who is told something else: everything that is read (snapshots, objects,
// events) has gone through see, which returns the object itself, another one in its place, or nil for none. Writes go
// to the store as ever.
//
// Of each object see is asked once, and the answer stays. It must not change the object, keep the name, namespace and
// kind, and not call the store.
func (s *Store) Through(see func(Object) Object) *Store {
	return &Store{state: s.state, lens: &lens{see: see, seen: map[Object]Object{}}}
}

// lens is what a view of a store is read through. It is used under the store's lock. A nil lens shows things as they
// are.
type lens struct {
	see    func(Object) Object
	seen   map[Object]Object // what see made of objects, so that what is unchanged stays the same pointer
	newest *Snapshot         // what was made of the newest snapshot asked for
}

func (l *lens) object(o Object) Object {
	if l == nil {
		return o
	}
	if _, known := l.seen[o]; !known {
		l.seen[o] = l.see(o)
	}
	return l.seen[o]
}

func (l *lens) snapshot(s *Snapshot) *Snapshot {
	if l == nil {
		return s
	}
	if l.newest == nil || l.newest.Revision != s.Revision {
		l.newest = &Snapshot{
			Revision:        s.Revision,
			Namespaces:      lookAt[*corev1.Namespace](l, s.Namespaces),
			Nodes:           lookAt[*corev1.Node](l, s.Nodes),
			Pods:            lookAt[*corev1.Pod](l, s.Pods),
			Deployments:     lookAt[*appsv1.Deployment](l, s.Deployments),
			Services:        lookAt[*corev1.Service](l, s.Services),
			Endpoints:       lookAt[*corev1.Endpoints](l, s.Endpoints),
			EndpointSlices:  lookAt[*discoveryv1.EndpointSlice](l, s.EndpointSlices),
			NetworkPolicies: lookAt[*networkingv1.NetworkPolicy](l, s.NetworkPolicies),
		}
	}
	return l.newest
}

func lookAt[T Object](l *lens, all []T) []T {
	out := make([]T, 0, len(all))
	for _, o := range all {
		if seen := l.object(o); seen != nil {
			out = append(out, seen.(T))
		}
	}
	return out
}

// events are what a watcher is told: an object that vanishes from view looks deleted, one that comes into view added.
// Of what stays out of it no more than a revision is left.
func (l *lens) events(all []Event) []Event {
	if l == nil {
		return all
	}
	var out []Event
	for _, e := range all {
		now := l.object(e.Object)
		var old Object
		if e.Old != nil {
			old = l.object(e.Old)
		}
		switch {
		case old == nil && (now == nil || e.Type == watch.Deleted):
			e = Event{Revision: e.Revision}
		case now == nil:
			e.Type, e.Object, e.Old = watch.Deleted, old, old
		case old == nil:
			e.Type, e.Object, e.Old = watch.Added, now, nil
		default:
			e.Object, e.Old = now, old
		}
		out = append(out, e)
	}
	return out
}
