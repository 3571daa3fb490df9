// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func TestSimpleService(t *testing.T) {
	s := newTestStore(t, Config{}, "n1", "n2")
	apply(t, s, newPod("web-1", "n1", app("web")), newPod("web-2", "n2", app("web")), newPod("db-1", "n2", app("db")))
	report(t, s, "web-1", true, "10.244.1.2")
	report(t, s, "web-2", false, "10.244.2.2")
	report(t, s, "db-1", true, "10.244.2.3")
	before := s.Snapshot()
	changed := s.Changed(before.Revision)
	apply(t, s, newService("web"))

	select {
	case <-changed:
	default:
		t.Error("Changed is still open after Apply returned")
	}
	slices := s.Snapshot().EndpointSlices
	if len(slices) != 1 || len(before.EndpointSlices) != 0 {
		t.Fatalf("slices: %d before and %d after, want 0 and 1", len(before.EndpointSlices), len(slices))
	}
	want := []discoveryv1.Endpoint{
		wantEndpoint(s, "web-1", "n1", "10.244.1.2", true, true, false),
		wantEndpoint(s, "web-2", "n2", "10.244.2.2", false, false, false),
	}
	checkEndpoints(t, slices[0], want)
	if svc := get[*corev1.Service](t, s, "web"); svc.Spec.ClusterIP == "" || svc.Spec.ClusterIPs[0] != svc.Spec.ClusterIP {
		t.Errorf("clusterIP %q, clusterIPs %q", svc.Spec.ClusterIP, svc.Spec.ClusterIPs)
	}

	if err := s.Delete(KindService, "default", "web"); err != nil {
		t.Fatal(err)
	}
	if after := s.Snapshot(); len(after.EndpointSlices)+len(after.Services) != 0 {
		t.Errorf("%d slices and %d services are left", len(after.EndpointSlices), len(after.Services))
	}
}

func wantEndpoint(s *Store, pod, node, ip string, ready, serving, terminating bool) discoveryv1.Endpoint {
	p, _ := Get[*corev1.Pod](s, "default", pod)
	return discoveryv1.Endpoint{
		Addresses: []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(serving),
			Terminating: ptr.To(terminating)},
		NodeName:  ptr.To(node),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: p.UID},
	}
}
