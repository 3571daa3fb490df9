// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func isVirtual() spec.Scenario {
	return spec.Scenario{
		ID: "clusterip-is-virtual", HoldsWithoutProxier: true,
		Needs: []spec.Feature{spec.ClusterIP, spec.VirtualIP},
		Given: []store.Object{Backend("a1", "n1"), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			for _, family := range w.Lab().Stack().Families() {
				vip, err := w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp")
				if err != nil {
					return err
				}
				for _, n := range w.Lab().Nodes() {
					addrs, err := n.LocalAddrs()
					if err != nil {
						return &spec.HarnessError{Err: err}
					}
					if slices.Contains(addrs, vip.Addr()) {
						return fmt.Errorf("an interface of %s owns %s", n.Name(), vip.Addr())
					}
				}
				owner, err := traffic.Resolve(ctx, w.Lab().Client().NS, "eth0", vip.Addr(), w.Lab().Node("n3").Addr(family))
				if err != nil {
					return &spec.HarnessError{Err: err}
				}
				if owner != nil {
					return fmt.Errorf("%s answers for %s on the network", owner, vip.Addr())
				}
			}
			return nil
		}}},
	}
}
