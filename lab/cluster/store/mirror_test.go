// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const apiEndpoints = `
apiVersion: v1
kind: Endpoints
metadata:
  name: api
  labels: {team: core}
subsets:
- addresses:
  - ip: 192.168.7.201
    nodeName: n1
  - ip: fd00:7::201
  notReadyAddresses:
  - ip: 192.168.7.202
  ports:
  - port: 6443
`

func applyYAML(t testing.TB, s *Store, text string) {
	t.Helper()
	apply(t, s, decode(t, text)...)
}

// mirrored says what the mirroring slices of a Service hold.
func mirrored(s *Store, service string) []string {
	var out []string
	for _, slice := range s.Snapshot().EndpointSlices {
		if slice.Labels[discoveryv1.LabelServiceName] != service ||
			slice.Labels[discoveryv1.LabelManagedBy] != "endpointslicemirroring-controller.k8s.io" {
			continue
		}
		for _, e := range slice.Endpoints {
			out = append(out, fmt.Sprintf("%s:%d ready=%t", e.Addresses[0], *slice.Ports[0].Port, *e.Conditions.Ready))
		}
	}
	slices.Sort(out)
	return out
}

func TestEndpointsAreMirrored(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	without := func(svc *corev1.Service) { svc.Spec.Selector = nil }
	all := []string{"192.168.7.201:6443 ready=true", "192.168.7.202:6443 ready=false", "fd00:7::201:6443 ready=true"}

	applyYAML(t, s, apiEndpoints)
	checkSame(t, "without a Service", mirrored(s, "api"), []string(nil))
	apply(t, s, newService("api", without))
	checkSame(t, "with its Service", mirrored(s, "api"), all)
	revision := s.Snapshot().Revision
	applyYAML(t, s, apiEndpoints)
	if now := s.Snapshot().Revision; now != revision {
		t.Errorf("the same Endpoints again made revision %d of %d", now, revision)
	}
	applyYAML(t, s, strings.Replace(apiEndpoints, "  - ip: fd00:7::201\n", "", 1))
	checkSame(t, "without IPv6", mirrored(s, "api"), all[:2])
	apply(t, s, newService("api"))
	checkSame(t, "with a selector", mirrored(s, "api"), []string(nil))
	apply(t, s, newService("api", without))
	if err := s.Delete(KindEndpoints, "default", "api"); err != nil {
		t.Fatal(err)
	}
	checkSame(t, "without Endpoints", mirrored(s, "api"), []string(nil))

	err := s.Apply(&corev1.Endpoints{ObjectMeta: newService("bad").ObjectMeta, Subsets: []corev1.EndpointSubset{
		{Ports: []corev1.EndpointPort{{Port: 0}}}, {Addresses: []corev1.EndpointAddress{{IP: "127.0.0.1"}}},
	}})
	for _, want := range []string{"subsets[0]: Required value", "subsets[0].ports[0].port: Invalid value: 0",
		`subsets[1].addresses[0].ip: Invalid value: "127.0.0.1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
