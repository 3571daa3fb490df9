// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// PublishAPI makes the Service default/kubernetes, with Endpoints and EndpointSlices, for an API that pods reach at the
// given addresses, all of one port. The Service has the first ClusterIP. A second call replaces the addresses.
func (s *Store) PublishAPI(addrs ...netip.AddrPort) error {
	if len(addrs) == 0 {
		return fmt.Errorf("the API has no address")
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}
	port := int32(addrs[0].Port())
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: s.cidrs[0].Masked().Addr().Next().String(),
		Ports:     []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(port)}},
	}}
	svc.Labels = map[string]string{"component": "apiserver", "provider": "kubernetes"}
	endpoints := &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
		Ports: []corev1.EndpointPort{{Name: "https", Port: port}},
	}}}
	endpoints.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	objects := []Object{svc, endpoints}
	slices := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
	for _, a := range addrs {
		t := discoveryv1.AddressType(familyOf(a.Addr()))
		if slices[t] == nil {
			slices[t] = apiSlice(meta, t, port)
			objects = append(objects, slices[t])
		}
		slices[t].Endpoints = append(slices[t].Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
		if t == discoveryv1.AddressType(s.families[0]) {
			endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses,
				corev1.EndpointAddress{IP: a.Addr().String()})
		}
	}
	return s.Apply(objects...)
}

// apiSlice returns a slice without endpoints. The one of IPv4 is called like the Service.
func apiSlice(meta metav1.ObjectMeta, t discoveryv1.AddressType, port int32) *discoveryv1.EndpointSlice {
	if t != discoveryv1.AddressTypeIPv4 {
		meta.Name += "-" + strings.ToLower(string(t))
	}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
	return &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: t, Ports: []discoveryv1.EndpointPort{
		{Name: ptr.To("https"), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)},
	}}
}
