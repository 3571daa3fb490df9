// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

func TestHintsOfTopologyModeAuto(t *testing.T) {
	for _, test := range []struct {
		name  string
		cpus  [3]string // of n1 in east, n2 in west and n3 in west
		pods  [3]int    // on these nodes
		hints map[string]int
	}{
		{"every endpoint for its zone", [3]string{"4", "4", "4"}, [3]int{1, 1, 1}, map[string]int{"east": 1, "west": 2}},
		{"a zone with few processors", [3]string{"2", "4", "4"}, [3]int{5, 5, 0}, map[string]int{"east": 2, "west": 8}},
		{"a zone without endpoints", [3]string{"4", "2", "2"}, [3]int{0, 3, 3}, map[string]int{"east": 3, "west": 3}},
		{"fewer endpoints than zones", [3]string{"4", "2", "2"}, [3]int{1, 0, 0}, map[string]int{}},
		{"shares that do not come out", [3]string{"4", "2", "2"}, [3]int{2, 1, 0}, map[string]int{}},
		{"unknown processors", [3]string{"4", "", "2"}, [3]int{2, 2, 2}, map[string]int{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{})
			apply(t, s, newNode("n1", "east"), newNode("n2", "west"), newNode("n3", "west"))
			for i, cpu := range test.cpus {
				if err := UpdateStatus(s, "", fmt.Sprintf("n%d", i+1), func(n *corev1.Node) {
					n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
					if cpu != "" {
						n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(cpu)}
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			apply(t, s, newService("web", func(svc *corev1.Service) {
				svc.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
			}))
			for i, n := range test.pods {
				for j := range n {
					name := fmt.Sprintf("p%d-%d", i, j)
					apply(t, s, newPod(name, fmt.Sprintf("n%d", i+1), app("web")))
					report(t, s, name, true, fmt.Sprintf("10.244.%d.%d", i, j+1))
				}
			}
			got := map[string]int{}
			for _, slice := range s.Snapshot().EndpointSlices {
				for _, e := range slice.Endpoints {
					if e.Hints != nil {
						got[e.Hints.ForZones[0].Name]++
					}
				}
			}
			if !maps.Equal(got, test.hints) {
				t.Errorf("endpoints by zone: %v, want %v", got, test.hints)
			}
		})
	}
}
