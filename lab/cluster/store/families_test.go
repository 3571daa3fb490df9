// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
)

func TestFamilies(t *testing.T) {
	const single, prefer, require = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	type spec = corev1.ServiceSpec
	tests := []struct {
		name     string
		stack    lab.Stack
		in       spec
		families []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
		fails    string
	}{
		{"default", lab.Dual, spec{}, []corev1.IPFamily{v4}, single, ""},
		{"default on IPv6", lab.IPv6, spec{}, []corev1.IPFamily{v6}, single, ""},
		{"prefer", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer)}, []corev1.IPFamily{v4, v6}, prefer, ""},
		{"prefer on one family", lab.IPv6, spec{IPFamilyPolicy: ptr.To(prefer)}, []corev1.IPFamily{v6}, prefer, ""},
		{"require, IPv6 first", lab.Dual, spec{IPFamilyPolicy: ptr.To(require), IPFamilies: []corev1.IPFamily{v6}},
			[]corev1.IPFamily{v6, v4}, require, ""},
		{"one of two", lab.Dual, spec{IPFamilies: []corev1.IPFamily{v6}}, []corev1.IPFamily{v6}, single, ""},
		{"inferred from the address", lab.Dual, spec{ClusterIP: "fd00:10:96::5"}, []corev1.IPFamily{v6}, single, ""},
		{"inferred from both addresses", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer), ClusterIP: "fd00:10:96::5",
			ClusterIPs: []string{"fd00:10:96::5", "10.96.0.5"}},
			[]corev1.IPFamily{v6, v4}, prefer, ""},
		{"headless", lab.Dual, spec{ClusterIP: "None", Selector: app("x")}, []corev1.IPFamily{v4}, single, ""},
		{"headless without selector", lab.IPv4, spec{ClusterIP: "None"}, []corev1.IPFamily{v4, v6}, require, ""},
		{"two families, one wanted", lab.Dual, spec{IPFamilies: []corev1.IPFamily{v4, v6}}, nil, "",
			"must be 'PreferDualStack' or 'RequireDualStack' when multiple IP families"},
		{"address of the other family", lab.Dual, spec{ClusterIP: "10.96.0.5", IPFamilies: []corev1.IPFamily{v6}}, nil, "",
			"expected an IPv6 value as indicated by `ipFamilies[0]`"},
		{"twice the same", lab.Dual, spec{IPFamilyPolicy: ptr.To(prefer), IPFamilies: []corev1.IPFamily{v4, v4}}, nil, "",
			"spec.ipFamilies[1]: Duplicate value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{Stack: test.stack})
			svc := newService("web")
			test.in.Ports = svc.Spec.Ports
			svc.Spec = test.in
			err := s.Apply(svc)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := get[*corev1.Service](t, s, "web").Spec
			checkSame(t, "families", got.IPFamilies, test.families)
			if *got.IPFamilyPolicy != test.policy {
				t.Errorf("policy %s, want %s", *got.IPFamilyPolicy, test.policy)
			}
			if got.ClusterIP == "None" {
				return
			}
			for i, ip := range got.ClusterIPs {
				if f := familyOf(netip.MustParseAddr(ip)); f != test.families[i] {
					t.Errorf("clusterIPs[%d] %s is %s", i, ip, f)
				}
			}
			if len(got.ClusterIPs) != len(test.families) {
				t.Errorf("clusterIPs %q for families %q", got.ClusterIPs, test.families)
			}
		})
	}
}

func TestFamiliesComeAndGo(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual})
	apply(t, s, newService("web"))
	first := get[*corev1.Service](t, s, "web").Spec.ClusterIP
	setPolicy := func(p corev1.IPFamilyPolicy) []string {
		t.Helper()
		if err := Update(s, "default", "web", func(svc *corev1.Service) { svc.Spec.IPFamilyPolicy = &p }); err != nil {
			t.Fatal(err)
		}
		return get[*corev1.Service](t, s, "web").Spec.ClusterIPs
	}
	both := setPolicy(corev1.IPFamilyPolicyPreferDualStack)
	if len(both) != 2 || both[0] != first {
		t.Fatalf("clusterIPs %q after %s", both, first)
	}
	if one := setPolicy(corev1.IPFamilyPolicySingleStack); len(one) != 1 || one[0] != first {
		t.Errorf("clusterIPs %q, want %s alone", one, first)
	}
	apply(t, s, newService("heir", func(svc *corev1.Service) { svc.Spec.ClusterIP = both[1] })) // it is free again
	apply(t, s, newService("headless", func(svc *corev1.Service) { svc.Spec.ClusterIP = "None" }))
	err := Update(s, "default", "headless", func(svc *corev1.Service) { svc.Spec.IPFamilies = []corev1.IPFamily{"IPv6"} })
	if err == nil || !strings.Contains(err.Error(),
		"spec.ipFamilies[0]: Invalid value: \"IPv6\": may not change once set") {
		t.Errorf("change of the primary family: %v", err)
	}
}

func TestExternalNameTransitions(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newPod("p", "n1", app("web")), newService("web", func(svc *corev1.Service) { svc.Spec.Type = "NodePort" }))
	report(t, s, "p", true, "10.244.1.2")
	if err := Update(s, "default", "web", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.ExternalName = "ExternalName", "example.com"
	}); err != nil {
		t.Fatal(err)
	}
	svc := get[*corev1.Service](t, s, "web").Spec
	if svc.ClusterIP != "" || len(svc.ClusterIPs)+len(svc.IPFamilies) > 0 || svc.Ports[0].NodePort != 0 ||
		svc.InternalTrafficPolicy != nil {
		t.Errorf("spec %+v", svc)
	}
	if n := len(s.Snapshot().EndpointSlices); n != 0 {
		t.Errorf("%d slices of an ExternalName", n)
	}
	if err := Update(s, "default", "web", func(svc *corev1.Service) { svc.Spec.Type = "ClusterIP" }); err != nil {
		t.Fatal(err)
	}
	svc = get[*corev1.Service](t, s, "web").Spec
	if svc.ClusterIP == "" || svc.ExternalName != "" || len(s.Snapshot().EndpointSlices) != 1 {
		t.Errorf("spec %+v, %d slices", svc, len(s.Snapshot().EndpointSlices))
	}
}
