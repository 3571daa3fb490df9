// SPDX-License-Identifier: Apache-2.0

package engine

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/spec"
)

// World returns the cluster as a scenario in a Kubernetes namespace sees it. The namespace must exist. The caller calls
// end when no method of the World runs any more and before the proxier is replaced; end closes the sockets that the
// World has opened. Nothing is traced, no deviation is expected, and there is no Control.
func (s *Standing) World(namespace string) (w spec.World, end func() error) {
	scope := &scope{env: s.env, namespace: namespace, lastSeen: map[string]*corev1.Service{}}
	world := &world{
		scope: scope, prober: newProber(scope, false), record: &record{expected: expected.New(nil)},
		cell: &Cell{Scenario: spec.Scenario{ID: namespace}, Proxier: s.env.proxier.program},
	}
	return world, func() error { return world.close(true) }
}
