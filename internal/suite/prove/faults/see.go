// SPDX-License-Identifier: Apache-2.0

package faults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/exec"
)

// copied is a State that changes a copy of each object of a kind.
func copied[T interface {
	store.Object
	DeepCopy() T
}](change func(T)) func() func(store.Object) store.Object {
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

// services is a State that changes every Service.
func services(change func(*corev1.Service)) func() func(store.Object) store.Object {
	return copied(change)
}

// eachServicePort is a State that changes every port of every Service.
func eachServicePort(change func(*corev1.ServicePort)) func() func(store.Object) store.Object {
	return services(func(s *corev1.Service) {
		for i := range s.Spec.Ports {
			change(&s.Spec.Ports[i])
		}
	})
}

// slicesOf is a State that changes every EndpointSlice.
func slicesOf(change func(*discoveryv1.EndpointSlice)) func() func(store.Object) store.Object {
	return copied(change)
}

// eachEndpoint is a State that changes every endpoint of every EndpointSlice.
func eachEndpoint(change func(*discoveryv1.Endpoint)) func() func(store.Object) store.Object {
	return slicesOf(func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			change(&s.Endpoints[i])
		}
	})
}

// see is a State that remembers nothing. It spares the canaries, by which the state of a program from outside is
// judged: a fault in them would be one of the harness.
func see(change func(store.Object) store.Object) func() func(store.Object) store.Object {
	return func() func(store.Object) store.Object {
		return func(o store.Object) store.Object {
			if o.GetNamespace() == exec.CanaryNamespace {
				return o
			}
			return change(o)
		}
	}
}

// remembering is a State that shows each object of a kind in the light of what it showed of it last; that is nil for
// one that is new.
func remembering[T store.Object](change func(last, now T) T) func() func(store.Object) store.Object {
	return func() func(store.Object) store.Object {
		last := map[store.Key]T{}
		return see(func(o store.Object) store.Object {
			now, ok := o.(T)
			if !ok {
				return o
			}
			key := store.KeyOf(now)
			shown := change(last[key], now)
			last[key] = shown
			return shown
		})()
	}
}
