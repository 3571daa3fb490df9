// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// portbinding returns the scenarios of NodePorts and the sockets of other processes.
func portbinding() []spec.Scenario {
	return append([]spec.Scenario{holdsNodePort(), hostPorts()}, listeners()...)
}

const heldPort = 31481

// holdsNodePort has a cluster of its own, so that the port is not given to another Service while it is free.
func holdsNodePort() spec.Scenario {
	return spec.Scenario{
		ID: "pb-proxier-holds-nodeport", NodePorts: []uint16{heldPort}, Cluster: &spec.ClusterConfig{},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.NodePortHeld},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8080)), held, Service("other", Selecting("web"), NodePort()),
		},
		Steps: []spec.Step{
			{
				Name: "the proxier came first",
				Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}}},
				Check: func(_ context.Context, w spec.World) error {
					var errs []error
					for _, proto := range []string{"tcp", "udp"} {
						if err := w.Serve("n1", proto, heldPort); !errors.Is(err, unix.EADDRINUSE) {
							errs = append(errs, fmt.Errorf("another process binds %s port %d of n1, and gets %v, not: %w", proto, heldPort,
								err, unix.EADDRINUSE))
						}
					}
					return errors.Join(errs...)
				},
			},
			{
				Name: "the Service is gone",
				Do: []spec.Action{Delete("Service", "web"), {Name: "settle",
					Run: func(ctx context.Context, w spec.World) error { return w.Settle(ctx) }}, Serve("n1", "tcp", heldPort)},
				Rows: []spec.Row{{From: "client", To: spec.HostAt("n1", heldPort), By: []string{"n1"}}},
			},
			{
				Name: "another process came first",
				Do:   []spec.Action{Apply(held)},
				Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", heldPort), By: []string{"n1"}},
					{From: "client", To: spec.HostAt("n1", heldPort), Proto: "udp", By: []string{"a2"}},
					{From: "client", To: spec.NodePortAt("n2", "web", 80), By: []string{"a2"}},
					{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}},
					{From: "client", To: spec.NodePortAt("n1", "other", 80), By: []string{"a2"}},
				},
			},
		},
	}
}

// held has the same NodePort for TCP and for UDP.
var held = Service("web", NodePort(), Port(80, 8080), UDPPort(80, 8080), func(s *corev1.Service) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = heldPort
	}
})
