package faults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/proxiers/exec"
)

// copied is a State that changes a copy of each object of a kind.
func copied[T interface {
	kube.Object
	DeepCopy() T
}](change func(T)) func() func(kube.Object) kube.Object {
	return see(func(o kube.Object) kube.Object {
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
func services(change func(*corev1.Service)) func() func(kube.Object) kube.Object {
	return copied(change)
}

// eachServicePort is a State that changes every port of every Service.
func eachServicePort(change func(*corev1.ServicePort)) func() func(kube.Object) kube.Object {
	return services(func(s *corev1.Service) {
		for i := range s.Spec.Ports {
			change(&s.Spec.Ports[i])
		}
	})
}

// slicesOf is a State that changes every EndpointSlice.
func slicesOf(change func(*discoveryv1.EndpointSlice)) func() func(kube.Object) kube.Object {
	return copied(change)
}

// eachEndpoint is a State that changes every endpoint of every EndpointSlice.
func eachEndpoint(change func(*discoveryv1.Endpoint)) func() func(kube.Object) kube.Object {
	return slicesOf(func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			change(&s.Endpoints[i])
		}
	})
}

// see is a State that remembers nothing. It spares the canaries, by which the state of a program from outside is judged:
// a fault in them would be one of the harness.
func see(change func(kube.Object) kube.Object) func() func(kube.Object) kube.Object {
	return func() func(kube.Object) kube.Object {
		return func(o kube.Object) kube.Object {
			if o.GetNamespace() == exec.CanaryNamespace {
				return o
			}
			return change(o)
		}
	}
}

// remembering is a State that shows each object of a kind in the light of what it showed of it last; that is nil for one
// that is new.
func remembering[T kube.Object](change func(last, now T) T) func() func(kube.Object) kube.Object {
	return func() func(kube.Object) kube.Object {
		last := map[kube.Key]T{}
		return see(func(o kube.Object) kube.Object {
			now, ok := o.(T)
			if !ok {
				return o
			}
			key := kube.KeyOf(now)
			shown := change(last[key], now)
			last[key] = shown
			return shown
		})()
	}
}
