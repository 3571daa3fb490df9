// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// overload is by how much an endpoint may get more than its share of the traffic (k8s.io/endpointslice/topologycache).
const overload = 0.2

// wantsTopology reports whether a Service asks for hints that keep traffic in its zone as far as the processors of the
// zones allow (https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing).
func wantsTopology(svc *corev1.Service) bool {
	mode := cmp.Or(svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints],
		svc.Annotations[corev1.AnnotationTopologyMode])
	return mode == "Auto" || mode == "auto"
}

// shares returns which part of the cluster's processors each zone has. It returns nil if a node lacks a zone or says
// nothing about its processors, and if there is only one zone.
func (tx *Tx) shares() map[string]float64 {
	out, total := map[string]float64{}, 0.0
	for _, n := range tx.s.nodes.objects {
		if !isNodeReady(n) {
			continue
		}
		zone, cpu := n.Labels[corev1.LabelTopologyZone], n.Status.Allocatable.Cpu().AsApproximateFloat64()
		if zone == "" || cpu == 0 {
			return nil
		}
		out[zone] += cpu
		total += cpu
	}
	if len(out) < 2 {
		return nil
	}
	for zone := range out {
		out[zone] /= total
	}
	return out
}

func isNodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// distribute gives the ready endpoints of a family hints for zones, in proportion to the zones' processors: each its
// own zone, but some that of a zone that has too few. If the zones cannot be served without overload, there are no
// hints.
func (tx *Tx) distribute(groups map[string]*backends) {
	var ready []*discoveryv1.Endpoint
	for _, b := range groups {
		for i := range b.endpoints {
			e := &b.endpoints[i]
			if e.Hints = nil; ptr.Deref(e.Conditions.Ready, false) {
				ready = append(ready, e)
			}
		}
	}
	slices.SortFunc(ready, func(a, b *discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	missing := quotas(tx.shares(), len(ready))
	if missing == nil || slices.ContainsFunc(ready, func(e *discoveryv1.Endpoint) bool { return e.Zone == nil }) {
		return
	}
	for _, e := range ready {
		missing[*e.Zone]--
	}
	for _, e := range ready {
		zone := *e.Zone
		if poorest := mostMissing(missing); missing[zone] <= -0.5 && missing[poorest] >= 0.5 &&
			(missing[zone] <= -1 || missing[poorest] >= 1) {
			missing[zone]++
			missing[poorest]--
			zone = poorest
		}
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
}

// quotas returns how many of n endpoints each zone wants, or nil if the least that they need is more than there is.
func quotas(shares map[string]float64, n int) map[string]float64 {
	if len(shares) == 0 || len(shares) > n {
		return nil
	}
	out, least := map[string]float64{}, 0.0
	for zone, share := range shares {
		minimum := math.Ceil(share * float64(n) / (1 + overload))
		out[zone] = max(share*float64(n), minimum)
		least += minimum
	}
	if least > float64(n) {
		return nil
	}
	return out
}

func mostMissing(missing map[string]float64) string {
	return slices.MaxFunc(slices.Sorted(maps.Keys(missing)), func(a, b string) int {
		return cmp.Compare(missing[a], missing[b])
	})
}
