// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func replyFromVIP() spec.Scenario {
	return spec.Scenario{
		ID:    "clusterip-reply-from-vip",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			caught, err := Catch(w, func() error {
				return w.Expect(ctx, spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 20, By: []string{"b1", "a2"}})
			}, "a1")
			if err != nil {
				return err
			}
			for _, family := range w.Lab().Stack().Families() {
				vip, err := w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp")
				if err != nil {
					return err
				}
				answers := 0
				for _, c := range caught {
					if c.Proto != "tcp" || c.Direction != observe.In || c.Dst.Addr().Is4() != vip.Addr().Is4() {
						continue
					}
					if c.Src != vip {
						return fmt.Errorf("the client got a packet that does not come from %s: %s", vip, c.Packet)
					}
					answers++
				}
				if answers < 40 {
					return spec.HarnessErrorf("the capture holds %d packets from %s: fewer than two for each connection", answers, vip)
				}
			}
			return nil
		}}},
	}
}
