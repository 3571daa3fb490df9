// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Proxiers read EndpointSlices alone, so slices mirror hand-written Endpoints, as in Kubernetes.

const mirrorManager = "endpointslicemirroring-controller.k8s.io"

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			setDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range s.Addresses {
			errs = append(errs, validateOrdinaryIP(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range s.NotReadyAddresses {
			errs = append(errs, validateOrdinaryIP(at.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, p := range s.Ports {
			at := at.Child("ports").Index(j)
			errs = append(errs, validatePortName(at.Child("name"), p.Name, len(s.Ports) > 1)...)
			errs = append(errs, validatePort(at.Child("port"), p.Port)...)
			errs = append(errs, oneOf(at.Child("protocol"), p.Protocol, protocols...)...)
		}
	}
	return errs
}

// mirror makes the slices of a Service without a selector equal to its Endpoints.
func (tx *Tx) mirror(key Key) {
	want := map[string]*discoveryv1.EndpointSlice{}
	e, svc := tx.s.endpoints.objects[key], tx.s.services.objects[key]
	if e != nil && svc != nil && len(svc.Spec.Selector) == 0 && e.Labels[discoveryv1.LabelSkipMirror] != "true" {
		want = mirrorSlices(e)
	}
	for _, k := range sorted(tx.s.index.slicesByService[key]) {
		if s := tx.s.slices.objects[k]; s.Labels[discoveryv1.LabelManagedBy] == mirrorManager && want[k.Name] == nil {
			tx.removeRef(ref{KindEndpointSlice, k})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		s := want[name]
		if old := tx.s.slices.objects[KeyOf(s)]; old != nil {
			keepMeta(s, old)
		}
		tx.put(ResourceOf(s), s)
	}
}

// mirrorSlices makes one slice per address family and set of ports, by name.
func mirrorSlices(e *corev1.Endpoints) map[string]*discoveryv1.EndpointSlice {
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, subset := range e.Subsets {
		var ports []discoveryv1.EndpointPort
		for _, p := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{
				Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(p.Protocol), AppProtocol: p.AppProtocol,
			})
		}
		for _, a := range subset.Addresses {
			addMirrored(out, e, ports, a, true)
		}
		for _, a := range subset.NotReadyAddresses {
			addMirrored(out, e, ports, a, false)
		}
	}
	return out
}

func addMirrored(to map[string]*discoveryv1.EndpointSlice, e *corev1.Endpoints, ports []discoveryv1.EndpointPort,
	a corev1.EndpointAddress, ready bool) {
	t := discoveryv1.AddressType(familyOf(netip.MustParseAddr(a.IP)))
	name := e.Name + "-" + suffix(fmt.Sprintf("%s mirror %s %s", KeyOf(e), t, portsKey(ports)))
	s := to[name]
	if s == nil {
		s = &discoveryv1.EndpointSlice{AddressType: t, Ports: ports}
		s.Namespace, s.Name, s.GenerateName = e.Namespace, name, e.Name+"-"
		s.Labels = map[string]string{}
		maps.Copy(s.Labels, e.Labels)
		s.Labels[discoveryv1.LabelServiceName] = e.Name
		s.Labels[discoveryv1.LabelManagedBy] = mirrorManager
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e,
			corev1.SchemeGroupVersion.WithKind(string(KindEndpoints)))}
		to[name] = s
	}
	endpoint := discoveryv1.Endpoint{
		Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: a.NodeName,
		TargetRef: a.TargetRef,
	}
	if a.Hostname != "" {
		endpoint.Hostname = ptr.To(a.Hostname)
	}
	s.Endpoints = append(s.Endpoints, endpoint)
}
