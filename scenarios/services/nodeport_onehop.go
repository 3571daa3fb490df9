// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func singleNATHop() spec.Scenario {
	return spec.Scenario{
		ID:    "nodeport-single-nat-hop",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			caught, err := Catch(w, func() error {
				return w.Expect(ctx, spec.Row{
					From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}, Flow: spec.MasqueradedOn("n1"),
				})
			}, "n1", "n2")
			if err != nil {
				return err
			}
			for _, family := range w.Lab().Stack().Families() {
				vip, err := w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp")
				if err != nil {
					return err
				}
				nodePort, err := w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp")
				if err != nil {
					return err
				}
				arrived := false
				for _, c := range caught {
					p := c.Innermost()
					if p.Src.Addr() == vip.Addr() || p.Dst.Addr() == vip.Addr() {
						return fmt.Errorf("a packet on %s carries the ClusterIP: %s", c.Host, c.Packet)
					}
					arrived = arrived || c.Dst == nodePort
				}
				if !arrived {
					return spec.HarnessErrorf("the capture holds no packet to %s", nodePort)
				}
			}
			return nil
		}}},
	}
}
