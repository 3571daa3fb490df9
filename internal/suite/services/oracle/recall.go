// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Recall says which endpoint a new connection must reach, after the cluster has changed to this state, if the client
// has reached server by the same question in the state before. The answer is Open unless both states have the same
// Service with affinity, the server may get connections in both, and one slice has said so all the time.
//
// It is Open as well for Services with a policy Local: a client that asks two of their addresses reaches two endpoints,
// and the API does not say which of them it reaches the next time.
func (s *State) Recall(before *State, q Question, server netip.AddrPort) Answer {
	was, _ := before.claims(q)
	is, _ := s.claims(q)
	undecided := answer(Open, affinity)
	if len(was) != 1 || len(is) != 1 || !sameService(was[0].service, is[0].service) || anyLocal(is[0].service) {
		return undecided
	}
	now := s.Ask(q)
	if now.Verdict != Served || !now.Sticky || !slices.Contains(now.Sure, server) ||
		!s.stillLists(before, is[0], server) {
		return undecided
	}
	now.Endpoints, now.Rules = []netip.AddrPort{server}, append([]Rule{affinityKept}, now.Rules...)
	return now
}

func sameService(a, b *corev1.Service) bool {
	return a.UID == b.UID && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func anyLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal ||
		ptr.Deref(s.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal
}

// stillLists reports whether a slice says the same of an endpoint in both states.
func (s *State) stillLists(before *State, c claim, server netip.AddrPort) bool {
	family := familyOf(server.Addr())
	for _, now := range s.EndpointSlices {
		i := slices.IndexFunc(before.EndpointSlices, func(o *discoveryv1.EndpointSlice) bool {
			return o.UID == now.UID && o.Namespace == now.Namespace && o.Name == now.Name
		})
		if i < 0 || !c.listedIn(now, family) || !c.listedIn(before.EndpointSlices[i], family) ||
			!equality.Semantic.DeepEqual(now.Ports, before.EndpointSlices[i].Ports) {
			continue
		}
		of := func(slice *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
			return slices.DeleteFunc(slices.Clone(slice.Endpoints), func(e discoveryv1.Endpoint) bool {
				return len(e.Addresses) == 0 || e.Addresses[0] != server.Addr().String()
			})
		}
		if listed := of(now); len(listed) > 0 && equality.Semantic.DeepEqual(listed, of(before.EndpointSlices[i])) {
			return true
		}
	}
	return false
}
