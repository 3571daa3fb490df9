// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
)

func TestPublishAPI(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual})
	for range 2 {
		if err := s.PublishAPI(netip.MustParseAddrPort("192.168.7.11:6443"),
			netip.MustParseAddrPort("[fd00::11]:6443")); err != nil {
			t.Fatal(err)
		}
	}
	if svc := get[*corev1.Service](t, s, "kubernetes"); svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("got %s", svc.Spec.ClusterIP)
	}
	for _, slice := range s.Snapshot().EndpointSlices {
		if len(slice.Endpoints) != 1 || *slice.Ports[0].Port != 6443 {
			t.Errorf("%s: got %+v", slice.Name, slice)
		}
	}
	if n := len(s.Snapshot().EndpointSlices); n != 2 {
		t.Errorf("%d slices, want one of each family", n)
	}
}

func TestBalancer(t *testing.T) {
	s := newTestStore(t, Config{LoadBalancers: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/30")}})
	balanced := func(name string) *corev1.Service {
		return newService(name, func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeLoadBalancer })
	}
	second := balanced("b")
	second.Spec.LoadBalancerIP = "203.0.113.3"
	apply(t, s, balanced("a"), second, balanced("c"), balanced("d"), newService("plain"))
	want := map[string]string{"a": "203.0.113.1", "b": "203.0.113.3", "c": "203.0.113.2", "d": "", "plain": ""}
	check := func() {
		t.Helper()
		for name, ip := range want {
			got := ""
			for _, in := range get[*corev1.Service](t, s, name).Status.LoadBalancer.Ingress {
				got += in.IP
			}
			if got != ip {
				t.Errorf("%s: got %q, want %q", name, got, ip)
			}
		}
	}
	check()
	apply(t, s, newService("a", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP }), balanced("c"))
	apply(t, s, balanced("d"))
	want["a"], want["d"] = "", "203.0.113.1"
	if f := get[*corev1.Service](t, s, "a").Finalizers; len(f) > 0 {
		t.Errorf("a Service without a load balancer has the finalizers %q", f)
	}
	apply(t, s, newService("d", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Annotations = corev1.ServiceTypeLoadBalancer, map[string]string{"again": ""}
	}))
	check()
	if f := get[*corev1.Service](t, s, "d").Finalizers; len(f) != 1 || f[0] != balancerFinalizer {
		t.Errorf("a Service with a load balancer has the finalizers %q", f)
	}
	if err := s.Delete(KindService, "default", "d"); err != nil {
		t.Fatal(err)
	}
	if svc, ok := Get[*corev1.Service](s, "default", "d"); ok {
		t.Errorf("it stays after its load balancer: %+v", svc)
	}
}
