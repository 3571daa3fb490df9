// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

var endpointFaults = []Fault{
	{Name: "endpoint-forgotten", Description: "The last endpoint of each EndpointSlice is overlooked.",
		State: each(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = s.Endpoints[:max(len(s.Endpoints)-1, 0)]
		})},
	{Name: "first-endpoint-alone", Description: "Of each EndpointSlice the first endpoint gets everything.",
		State: each(func(s *discoveryv1.EndpointSlice) { s.Endpoints = first(s.Endpoints) })},
	{Name: "target-port-off-by-one", Description: "Connections go to the port after that of the endpoint.",
		State: each(func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				s.Ports[i].Port = ptr.To(*s.Ports[i].Port + 1)
			}
		})},
	{Name: "target-ports-swapped", Description: "The first and the last port of an EndpointSlice are mixed up.",
		State: each(func(s *discoveryv1.EndpointSlice) {
			if last := len(s.Ports) - 1; last > 0 {
				s.Ports[0].Port, s.Ports[last].Port = s.Ports[last].Port, s.Ports[0].Port
			}
		})},
	{Name: "readiness-ignored", Description: "Endpoints that are not ready get connections.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions.Ready, e.Conditions.Serving = ptr.To(true), ptr.To(true)
		})},
	{Name: "silence-is-unready", Description: "An endpoint without a ready condition counts as not ready.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			if e.Conditions.Ready == nil {
				e.Conditions.Ready, e.Conditions.Serving = ptr.To(false), ptr.To(false)
			}
		})},
	{Name: "terminating-never-used", Description: "Endpoints that terminate get nothing, even where there are no others.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			if ptr.Deref(e.Conditions.Terminating, false) {
				e.Conditions.Serving = ptr.To(false)
			}
		})},
	{Name: "terminating-always-used", Description: "Endpoints that terminate get connections as if they were ready.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			if ptr.Deref(e.Conditions.Terminating, false) && ptr.Deref(e.Conditions.Serving, false) {
				e.Conditions.Ready, e.Conditions.Terminating = ptr.To(true), ptr.To(false)
			}
		})},
	{Name: "hints-ignored", Description: "Endpoints of all zones are used, whatever the hints are.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) { e.Hints = nil })},
	{Name: "locality-unknown", Description: "No endpoint is known to be on any node.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) { e.NodeName = nil })},
	{Name: "manual-slices-ignored",
		Description: "EndpointSlices that were not made by the cluster itself are passed over.",
		State: stateless(func(o store.Object) store.Object {
			if _, ok := o.(*discoveryv1.EndpointSlice); ok && o.GetLabels()[discoveryv1.LabelManagedBy] == "" {
				return nil
			}
			return o
		})},
	{Name: "departed-endpoints-stay", Description: "Endpoints that have left go on getting connections.",
		State: remembering(unite)},
	{Name: "further-addresses-used", Description: "Each address of an endpoint counts as an endpoint.",
		State: each(func(s *discoveryv1.EndpointSlice) {
			for _, e := range s.Endpoints {
				for _, a := range e.Addresses[1:] {
					e.Addresses = []string{a}
					s.Endpoints = append(s.Endpoints, e)
				}
			}
		})},
	{Name: "ready-alone-not-enough",
		Description: "An endpoint that is ready, but does not serve or terminates, gets nothing.",
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			if !ptr.Deref(e.Conditions.Serving, true) || ptr.Deref(e.Conditions.Terminating, false) {
				e.Conditions.Ready = ptr.To(false)
			}
		})},
	{Name: "slices-by-name", Description: "EndpointSlices count for the Service that they are called like.",
		State: each(func(s *discoveryv1.EndpointSlice) {
			name, _, _ := strings.Cut(s.Name, "-")
			s.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		})},
	{Name: "slice-labels-stay", Description: "EndpointSlices count for the Service that they were first labelled for.",
		State: keeping(func(last, now *discoveryv1.EndpointSlice) { now.Labels = last.Labels })},
	{Name: "first-conditions-stay", Description: "An address keeps the conditions under which it was first listed.",
		State: asFirstListed(func(first discoveryv1.Endpoint, now *discoveryv1.Endpoint) {
			now.Conditions = first.Conditions
		})},
	{Name: "one-port-per-service", Description: "All endpoints of a Service get the port number of the first slice.",
		State: onePortPerService},
	{Name: "odd-endpoint-stops-all", Description: "After an endpoint with a multicast address no change is made any more.",
		State: stoppingAt(func(o store.Object) bool {
			s, ok := o.(*discoveryv1.EndpointSlice)
			return ok && slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
				ip, err := netip.ParseAddr(e.Addresses[0])
				return err == nil && ip.IsMulticast()
			})
		})},
	{Name: "refusals-spread", Description: "A Service of which one port has no endpoint is refused on all of its ports.",
		State: refusalsSpread},
	{Name: "endpoint-updates-ignored", Description: "An EndpointSlice is served as it was at first.",
		State: remembering(asBefore[*discoveryv1.EndpointSlice])},
	{Name: "some-updates-lost", Description: "One EndpointSlice in fifty is served as it was at first.",
		State: remembering(func(last, now *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
			if crc32.ChecksumIEEE([]byte(now.Name))%50 == 0 {
				return asBefore(last, now)
			}
			return now
		})},
}

func onePortPerService() func(store.Object) store.Object {
	first := map[store.Key]*int32{}
	return each(func(s *discoveryv1.EndpointSlice) {
		key := store.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if len(s.Ports) == 1 && first[key] == nil {
			first[key] = s.Ports[0].Port
		} else if len(s.Ports) == 1 {
			s.Ports[0].Port = first[key]
		}
	})()
}

func refusalsSpread() func(store.Object) store.Object {
	ports := map[store.Key]int{}
	count := each(func(s *corev1.Service) { ports[store.KeyOf(s)] = len(s.Spec.Ports) })()
	empty := each(func(s *discoveryv1.EndpointSlice) {
		key := store.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if len(s.Ports) < ports[key] {
			s.Endpoints = nil
		}
	})()
	return func(o store.Object) store.Object { return empty(count(o)) }
}

// unite returns the current slice with the endpoints that were removed from it.
func unite(before, now *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	now = now.DeepCopy()
	for _, e := range before.Endpoints {
		if !slices.ContainsFunc(now.Endpoints,
			func(o discoveryv1.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
			now.Endpoints = append(now.Endpoints, e)
		}
	}
	return now
}
