// SPDX-License-Identifier: Apache-2.0

package faults

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/exec"
)

// State returns the view that the proxiers of one cluster have: a function that returns the object itself, another one
// in its place, or nil for none. It is called once for each version of each object.
type State func() func(store.Object) store.Object

// each is a State that changes a copy of each object of a kind.
func each[T interface {
	store.Object
	DeepCopy() T
}](change func(T)) State {
	return see(func(o store.Object) store.Object {
		t, ok := o.(T)
		if !ok {
			return o
		}
		t = t.DeepCopy()
		change(t)
		return t
	})
}

// eachEndpoint is a State that changes every endpoint of every EndpointSlice.
func eachEndpoint(change func(*discoveryv1.Endpoint)) State {
	return each(func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			change(&s.Endpoints[i])
		}
	})
}

// see is a State that remembers nothing. It spares the canaries, by which the state of a program from outside is
// judged: a fault in them would be one of the harness.
func see(change func(store.Object) store.Object) State {
	return func() func(store.Object) store.Object {
		return func(o store.Object) store.Object {
			if o.GetNamespace() == exec.CanaryNamespace {
				return o
			}
			return change(o)
		}
	}
}

// remembering is a State that shows each object of a kind in the light of what it showed of it last. An object that is
// new is shown as it is.
func remembering[T store.Object](change func(last, now T) T) State {
	return func() func(store.Object) store.Object {
		shown := map[store.Key]T{}
		return see(func(o store.Object) store.Object {
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

// asBefore is an object as it was, under the version that it has.
func asBefore[T interface {
	store.Object
	DeepCopy() T
}](last, now T) T {
	last = last.DeepCopy()
	last.SetResourceVersion(now.GetResourceVersion())
	return last
}
