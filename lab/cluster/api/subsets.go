// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// subsetsOf sums up slices of a family as the subsets that Kubernetes' own controller writes (RepackSubsets in
// pkg/api/v1/endpoints), because clients rely on it: a port is in one subset, with every address that serves it, and
// ports with the same addresses share a subset.
func subsetsOf(all []*discoveryv1.EndpointSlice, family discoveryv1.AddressType) []corev1.EndpointSubset {
	ports := map[string]*servedPort{}
	for _, s := range all {
		if s.AddressType != family {
			continue
		}
		for _, p := range portsOf(s) {
			key := portKey(p)
			if ports[key] == nil {
				ports[key] = &servedPort{p, map[string]corev1.EndpointAddress{}, map[string]bool{}}
			}
			ports[key].add(s.Endpoints)
		}
	}
	var out []corev1.EndpointSubset
	place := map[string]int{} // in out, by addresses
	for _, key := range slices.Sorted(maps.Keys(ports)) {
		p := ports[key]
		if len(p.addresses) == 0 {
			continue
		}
		i, shared := place[p.key()]
		if !shared {
			i = len(out)
			place[p.key()] = i
			out = append(out, p.subset())
		}
		if p.port != (corev1.EndpointPort{}) {
			out[i].Ports = append(out[i].Ports, p.port)
		}
	}
	return out
}

// servedPort is a port and the addresses that serve it, by a key that distinguishes them.
type servedPort struct {
	port      corev1.EndpointPort // zero where slices have no ports
	addresses map[string]corev1.EndpointAddress
	notReady  map[string]bool
}

// add takes in the endpoints of a slice. One that any slice calls not ready is not.
func (p *servedPort) add(endpoints []discoveryv1.Endpoint) {
	for _, e := range endpoints {
		ready := ptr.Deref(e.Conditions.Ready, true)
		if !ready && ptr.Deref(e.Conditions.Terminating, false) {
			continue // Endpoints cannot express these
		}
		key := e.Addresses[0]
		if e.TargetRef != nil {
			key += " " + string(e.TargetRef.UID)
		}
		if !ready {
			p.notReady[key] = true
		}
		p.addresses[key] = corev1.EndpointAddress{
			IP: e.Addresses[0], NodeName: e.NodeName, Hostname: ptr.Deref(e.Hostname, ""), TargetRef: e.TargetRef,
		}
	}
}

// key returns equal keys for two ports that the same addresses serve.
func (p *servedPort) key() string {
	return fmt.Sprint(slices.Sorted(maps.Keys(p.addresses)), slices.Sorted(maps.Keys(p.notReady)))
}

// subset holds the addresses, and no port yet.
func (p *servedPort) subset() corev1.EndpointSubset {
	var out corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(p.addresses)) {
		if p.notReady[key] {
			out.NotReadyAddresses = append(out.NotReadyAddresses, p.addresses[key])
		} else {
			out.Addresses = append(out.Addresses, p.addresses[key])
		}
	}
	return out
}

// portsOf returns the ports of a slice, or the zero port if it has none: its addresses count all the same.
func portsOf(s *discoveryv1.EndpointSlice) []corev1.EndpointPort {
	if len(s.Ports) == 0 {
		return []corev1.EndpointPort{{}}
	}
	var out []corev1.EndpointPort
	for _, p := range s.Ports {
		out = append(out, corev1.EndpointPort{
			Name: ptr.Deref(p.Name, ""), Port: ptr.Deref(p.Port, 0), AppProtocol: p.AppProtocol,
			Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP),
		})
	}
	return out
}

func portKey(p corev1.EndpointPort) string {
	return fmt.Sprintf("%s %s %d %s", p.Name, p.Protocol, p.Port, ptr.Deref(p.AppProtocol, ""))
}
