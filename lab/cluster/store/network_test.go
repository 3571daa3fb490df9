// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestNetworkPolicyDefaults: the store sets the defaults of a policy before any watcher sees it.
func TestNetworkPolicyDefaults(t *testing.T) {
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	for spec, want := range map[string][]networkingv1.PolicyType{
		"{podSelector: {}}":                                               {ingress},
		"{podSelector: {}, egress: []}":                                   {ingress},
		"{podSelector: {}, egress: [{}]}":                                 {ingress, egress},
		"{podSelector: {}, egress: [{}], policyTypes: [Egress]}":          {egress},
		"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}":             {ingress},
		"{podSelector: {}, egress: [{ports: [{port: 80}, {port: web}]}]}": {ingress, egress},
	} {
		objects := decode(t, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec: "+spec)
		s := New(Config{})
		if err := s.Apply(objects...); err != nil {
			t.Fatal(err)
		}
		p := s.Snapshot().NetworkPolicies[0]
		if !slices.Equal(p.Spec.PolicyTypes, want) {
			t.Errorf("%s: types %v, want %v", spec, p.Spec.PolicyTypes, want)
		}
		var ports []networkingv1.NetworkPolicyPort
		for _, r := range p.Spec.Ingress {
			ports = append(ports, r.Ports...)
		}
		for _, r := range p.Spec.Egress {
			ports = append(ports, r.Ports...)
		}
		for _, port := range ports {
			if port.Protocol == nil || *port.Protocol != corev1.ProtocolTCP {
				t.Errorf("%s: port %s has the protocol %v", spec, port.Port, port.Protocol)
			}
		}
	}
}
