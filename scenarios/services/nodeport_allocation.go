// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// allocationRules is about the control plane alone. The port that it chooses is from the part of the range that is
// given to nobody else.
func allocationRules() spec.Scenario {
	return spec.Scenario{
		ID: "nodeport-allocation-rules", NodePorts: []uint16{30058}, HoldsWithoutProxier: true,
		Steps: []spec.Step{{Check: func(_ context.Context, w spec.World) error {
			var errs []error
			wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
			if err := w.Apply(nodePortService("given", 0)); err != nil {
				wrong("a Service that asks for no nodePort is refused: %w", err)
			} else if p := nodePortOf(w, "given"); p < 30000 || p > 32767 {
				wrong("a Service that asks for no nodePort gets %d, outside of 30000-32767", p)
			}
			if err := w.Apply(nodePortService("chosen", 30058)); err != nil {
				wrong("the free nodePort 30058 is refused: %w", err)
			} else if p := nodePortOf(w, "chosen"); p != 30058 {
				wrong("a Service that asks for nodePort 30058 gets %d", p)
			}
			for _, port := range []int32{29999, 32768} {
				if w.Apply(nodePortService("outside", port)) == nil {
					wrong("nodePort %d, outside of the range, is given", port)
				}
			}
			if w.Apply(nodePortService("second", 30058)) == nil {
				wrong("nodePort 30058 is given twice")
			}
			if err := w.Store().Delete("Service", w.Namespace(), "chosen"); err != nil {
				wrong("delete the Service: %w", err)
			}
			if err := w.Apply(nodePortService("second", 30058)); err != nil {
				wrong("nodePort 30058 is refused although its Service is gone: %w", err)
			}
			return errors.Join(errs...)
		}}},
	}
}

func nodePortService(name string, nodePort int32) *corev1.Service {
	return fixture.Service(name, fixture.NodePort(), fixture.Port(80, 8080), func(s *corev1.Service) {
		s.Spec.Ports[0].NodePort = nodePort
	})
}

func nodePortOf(w spec.World, service string) int32 {
	s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), service)
	if !ok {
		return 0
	}
	return s.Spec.Ports[0].NodePort
}
