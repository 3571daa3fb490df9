// SPDX-License-Identifier: Apache-2.0

package store

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Snapshot is the whole state of the cluster at one revision. Every list is sorted by namespace, then name. Neither the
// snapshot nor any object in it is ever changed again: an update puts a new object in the place of the old one, so two
// snapshots can be compared object by object with ==.
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
}

// Objects lists the objects of a kind.
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
	}
	return nil
}

func asObjects[T Object](list []T) []Object {
	out := make([]Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}
