// SPDX-License-Identifier: Apache-2.0

package faults

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/exec"
)

// State returns the view of the proxiers of one cluster: a function for store.View, which returns the object itself, a
// replacement, or nil to hide it. The function is called once for each version of each object.
type State func() func(store.Object) store.Object

// each returns a State that changes a copy of each object of a kind.
func each[T interface {
	store.Object
	DeepCopy() T
}](change func(T)) State {
	return stateless(func(o store.Object) store.Object {
		t, ok := o.(T)
		if !ok {
			return o
		}
		t = t.DeepCopy()
		change(t)
		return t
	})
}

// eachEndpoint returns a State that changes every endpoint of every EndpointSlice.
func eachEndpoint(change func(*discoveryv1.Endpoint)) State {
	return each(func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			change(&s.Endpoints[i])
		}
	})
}

// stateless returns a State without memory. It does not change canaries, which show the progress of external programs:
// a fault in them would be a fault of the harness.
func stateless(change func(store.Object) store.Object) State {
	return func() func(store.Object) store.Object {
		return func(o store.Object) store.Object {
			if o.GetNamespace() == exec.CanaryNamespace {
				return o
			}
			return change(o)
		}
	}
}

// stoppingAt returns a State that hides the first odd object and all that come after it.
func stoppingAt(odd func(store.Object) bool) State {
	return func() func(store.Object) store.Object {
		stopped := false
		return stateless(func(o store.Object) store.Object {
			if stopped = stopped || odd(o); stopped {
				return nil
			}
			return o
		})()
	}
}

// remembering returns a State that computes each object of a kind from the last shown version and the current one. It
// does not change a new object.
func remembering[T store.Object](change func(last, now T) T) State {
	return func() func(store.Object) store.Object {
		shown := map[store.Key]T{}
		return stateless(func(o store.Object) store.Object {
			now, ok := o.(T)
			if !ok {
				return o
			}
			key := store.KeyOf(now)
			if last, known := shown[key]; known {
				now = change(last, now)
			}
			shown[key] = now
			return now
		})()
	}
}

// asBefore returns the last version of an object with the current resourceVersion.
func asBefore[T interface {
	store.Object
	DeepCopy() T
}](last, now T) T {
	last = last.DeepCopy()
	last.SetResourceVersion(now.GetResourceVersion())
	return last
}
