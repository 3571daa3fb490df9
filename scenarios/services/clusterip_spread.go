// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// spread lets Services over 1, 2, 3 and 7 of the same seven pods be judged by an exact test each.
func spread() spec.Scenario {
	return spec.Scenario{
		ID:    "clusterip-spread",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: spreadGiven(),
		Steps: []spec.Step{{Rows: spreadRows()}},
	}
}

var spreadSizes = []int{1, 2, 3, 7}

// spreadPods names the pods b1 to b7; the first runs on the client's node.
func spreadPods(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("b%d", i+1))
	}
	return names
}

func spreadGiven() []store.Object {
	objects := []store.Object{Pod("a1", "n1")}
	for i, name := range spreadPods(7) {
		objects = append(objects, Pod(name, fmt.Sprintf("n%d", i%3+1), TCP(8080), func(p *corev1.Pod) {
			for _, n := range spreadSizes {
				if i < n {
					p.Labels[fmt.Sprintf("among-%d", n)] = "yes"
				}
			}
		}))
	}
	for _, n := range spreadSizes {
		objects = append(objects, Service(fmt.Sprintf("of-%d", n), func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{fmt.Sprintf("among-%d", n): "yes"}
		}))
	}
	return objects
}

func spreadRows() []spec.Row {
	var rows []spec.Row
	for _, n := range spreadSizes {
		rows = append(rows, spec.Row{
			From: "a1", To: spec.ClusterIPOf(fmt.Sprintf("of-%d", n), 80),
			Times: 100 * n, By: spreadPods(n), Even: true,
		})
	}
	return rows
}
