package faults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/proxiers/exec"
)

// services is a State that changes every Service.
func services(change func(*corev1.Service)) func() func(kube.Object) kube.Object {
	return see(func(o kube.Object) kube.Object {
		s, ok := o.(*corev1.Service)
		if !ok {
			return o
		}
		s = s.DeepCopy()
		change(s)
		return s
	})
}

// slices is a State that changes every EndpointSlice.
func slicesOf(change func(*discoveryv1.EndpointSlice)) func() func(kube.Object) kube.Object {
	return see(func(o kube.Object) kube.Object {
		s, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			return o
		}
		s = s.DeepCopy()
		change(s)
		return s
	})
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
