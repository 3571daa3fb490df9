// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// affinityDoor is an address by which clients come to a Service, and the host that sends for them. It is no pod:
// enforcers of network policies drop what a pod sends with the address of another.
type affinityDoor struct {
	from string
	to   spec.Target
}

// in names the door in a family.
func (d affinityDoor) in(f lab.Family) string { return fmt.Sprintf("%s over %s", d.to, f) }

// come settles the cluster, makes the first n clients come by each door, in each family, and returns their pods by
// door.
func (c *affinityCrowd) come(ctx context.Context, n int, doors ...affinityDoor) (map[string][]string, error) {
	var mu sync.Mutex
	pods := map[string][]string{}
	err := each(ctx, c.w, func(f lab.Family) error {
		for _, d := range doors {
			got, err := c.sendFrom(ctx, d.from, f, d.to, 1, n)
			if err != nil {
				return fmt.Errorf("%s: %w", d.in(f), err)
			}
			mu.Lock()
			pods[d.in(f)] = got
			mu.Unlock()
		}
		return nil
	})
	return pods, err
}

// external are the external addresses of a Service.
type external struct{ ingress4, ingress6, ip4, ip6 string }

// some is how many clients come by each door. That none of them has a1, so that nothing is shown, happens once in 10^5
// times for a door.
const some = 30

// losesPod takes a1 out of use, which would still answer, and then makes further changes.
func losesPod(id string, x external, lose spec.Action, then ...spec.Action) spec.Scenario {
	return spec.Scenario{
		ID: id, Needs: []spec.Feature{
			spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.ExternalIPs, spec.SessionAffinity,
		},
		Given: []store.Object{
			Pod("c1", "n1"), udpPod("a1", "n1"), udpPod("a2", "n2"), udpPod("a3", "n3"),
			web(LoadBalancer(), ExternalIPs(x.ip4, x.ip6)),
		},
		Steps: []spec.Step{{
			Do:   append(IngressViaN1("web", x.ingress4, x.ingress6), RouteVia("client", x.ip4, x.ip6, "n1")),
			Rows: atWeb(),
			Check: func(ctx context.Context, w spec.World) error {
				all := &affinityCrowd{w: w, pods: three}
				doors := []affinityDoor{
					{"client", spec.NodePortAt("n1", "web", 80)}, {"client", spec.IngressOf("web", 80)},
					{"client", spec.AddrAt(x.ip4, x.ip6, 80)}, {"n1", spec.ClusterIPOf("web", 80)},
				}
				before := spec.Try(all.come(ctx, some, doors...))
				RunActions(ctx, w, lose)
				after := spec.Try(all.come(ctx, some, doors...))
				RunActions(ctx, w, then...)
				last := spec.Try(all.come(ctx, some, doors...))
				for door := range before {
					spec.TryDo(onlyClientsOfA1Move(door, before[door], after[door]))
					if !slices.Equal(after[door], last[door]) {
						return fmt.Errorf("%s: clients are moved for a second time: %v, then %v", door, after[door], last[door])
					}
				}
				return nil
			},
		}},
	}
}

func onlyClientsOfA1Move(door string, before, after []string) error {
	for i, pod := range before {
		switch {
		case after[i] == "a1":
			return fmt.Errorf("%s: a client of %s is sent to a1, which takes no new ones", door, pod)
		case pod != "a1" && pod != after[i]:
			return fmt.Errorf("%s: a client of %s is moved to %s, although its pod is still there", door, pod, after[i])
		}
	}
	return nil
}
