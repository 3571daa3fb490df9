// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// View returns a store whose reads (snapshots, objects, events) pass through see. For each object, see returns the
// object itself, a replacement, or nil to hide it. Writes go to the underlying store unchanged.
//
// The view calls see once for each object and keeps the result. see must not change the object or call the store, and
// its result must keep the name, namespace and kind.
func (s *Store) View(see func(Object) Object) *Store {
	return &Store{state: s.state, view: &view{see: see, seen: map[Object]Object{}}}
}

// view replaces objects for readers. It is used under the store's lock. A nil view replaces nothing.
type view struct {
	see    func(Object) Object
	seen   map[Object]Object // the results of see, so that an unchanged object keeps its pointer
	newest *Snapshot         // of the store's revision, or older
}

func (v *view) object(o Object) Object {
	if v == nil {
		return o
	}
	if _, known := v.seen[o]; !known {
		v.seen[o] = v.see(o)
	}
	return v.seen[o]
}

// objects returns a list as the view shows it.
func (v *view) objects(all []Object) []Object {
	if v == nil {
		return all
	}
	var out []Object
	for _, o := range all {
		if seen := v.object(o); seen != nil {
			out = append(out, seen)
		}
	}
	return out
}

// visible lists the objects of a table as the view shows them.
func visible[T Object](v *view, t *table[T]) []T {
	if v == nil {
		return t.list()
	}
	out := make([]T, 0, len(t.objects))
	for _, o := range t.list() {
		if seen := v.object(o); seen != nil {
			out = append(out, seen.(T))
		}
	}
	return out
}

// events returns the events of a watcher: an object that see begins to hide looks deleted, one that it ceases to hide
// looks added. Of an object that stays hidden only the revision is left.
func (v *view) events(all []Event) []Event {
	if v == nil {
		return all
	}
	var out []Event
	for _, e := range all {
		now := v.object(e.Object)
		var old Object
		if e.Old != nil {
			old = v.object(e.Old)
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

// Snapshot is the state of the cluster at one revision. Every list is sorted by namespace, then name. Neither the
// snapshot nor its objects are ever changed, so two snapshots can be compared object by object with ==.
type Snapshot struct {
	Revision        uint64
	Namespaces      []*corev1.Namespace
	Nodes           []*corev1.Node
	Pods            []*corev1.Pod
	Deployments     []*appsv1.Deployment
	Services        []*corev1.Service
	Endpoints       []*corev1.Endpoints // hand-written ones; proxiers look at the slices that mirror them
	EndpointSlices  []*discoveryv1.EndpointSlice
	NetworkPolicies []*networkingv1.NetworkPolicy
	others          map[Kind][]Object // see Objects
}

// listed are the kinds that have a field in Snapshot.
var listed = map[Kind]bool{
	KindNamespace: true, KindNode: true, KindPod: true, KindDeployment: true, KindService: true, KindEndpoints: true,
	KindEndpointSlice: true, KindNetworkPolicy: true,
}

// Objects lists the objects of a kind, also of those that have no field.
func (s *Snapshot) Objects(kind Kind) []Object {
	switch kind {
	case KindNamespace:
		return asObjects(s.Namespaces)
	case KindNode:
		return asObjects(s.Nodes)
	case KindPod:
		return asObjects(s.Pods)
	case KindDeployment:
		return asObjects(s.Deployments)
	case KindService:
		return asObjects(s.Services)
	case KindEndpoints:
		return asObjects(s.Endpoints)
	case KindEndpointSlice:
		return asObjects(s.EndpointSlices)
	case KindNetworkPolicy:
		return asObjects(s.NetworkPolicies)
	default:
		return s.others[kind]
	}
}

func asObjects[T Object](list []T) []Object {
	out := make([]Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// table holds the objects of one kind. It merges each list from the last one and the changed keys, without a sort.
type table[T Object] struct {
	objects map[Key]T
	listed  []T
	stale   keyset // changed since listed was made
}

// anyTable is a table of any type.
type anyTable interface {
	get(Key) (Object, bool)
	set(Key, Object) // a nil Object takes the key out
	inNamespace(string) []Key
	objectsInOrder() []Object
}

func newTable[T Object]() *table[T] {
	return &table[T]{objects: map[Key]T{}, stale: keyset{}}
}

func (t *table[T]) get(k Key) (Object, bool) {
	o, ok := t.objects[k]
	if !ok {
		return nil, false
	}
	return o, true
}

func (t *table[T]) set(k Key, o Object) {
	t.stale[k] = struct{}{}
	if o == nil {
		delete(t.objects, k)
		return
	}
	t.objects[k] = o.(T)
}

// list returns every object, sorted by namespace, then name.
func (t *table[T]) list() []T {
	if len(t.stale) == 0 {
		return t.listed
	}
	merged := make([]T, 0, len(t.objects))
	rest := t.listed
	for _, k := range sorted(t.stale) {
		at, was := slices.BinarySearchFunc(rest, k, func(o T, k Key) int { return compareKeys(KeyOf(o), k) })
		merged = append(merged, rest[:at]...)
		rest = rest[at:]
		if was {
			rest = rest[1:]
		}
		if o, is := t.objects[k]; is {
			merged = append(merged, o)
		}
	}
	t.listed = append(merged, rest...)
	clear(t.stale)
	return t.listed
}

func (t *table[T]) objectsInOrder() []Object { return asObjects(t.list()) }

// inNamespace lists the keys of a namespace in order.
func (t *table[T]) inNamespace(namespace string) []Key {
	var out []Key
	for k := range t.objects {
		if k.Namespace == namespace {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, compareKeys)
	return out
}
