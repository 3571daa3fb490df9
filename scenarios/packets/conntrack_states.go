// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// states has a cluster of its own, because it counts packets by their conntrack state.
func states() spec.Scenario {
	return spec.Scenario{
		ID: "ct-states", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("web"), Service("closed", Selecting("web"), UDPPort(53, 5999)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			// After conntrack (priority -200) and before the nat table (-100).
			count, err := Count(ctx, w, "n1",
				Counter{Name: "new", Hook: "prerouting", Priority: -150, Match: "tcp dport 80 ct state new"},
				Counter{Name: "established", Hook: "prerouting", Priority: -150, Match: "meta l4proto tcp ct state established"},
				Counter{Name: "related", Hook: "prerouting", Priority: -150, Match: "ct state related"},
				Counter{Name: "invalid", Hook: "prerouting", Priority: -150, Match: "ct state invalid"},
			)
			if err != nil {
				return err
			}
			if err := w.Expect(ctx,
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}},
				spec.Row{From: "c1", To: spec.ClusterIPOf("closed", 53), Proto: "udp", Want: spec.Refused},
			); err != nil {
				return err
			}
			for _, family := range w.Lab().Stack().Families() {
				if err := strayReset(w, family); err != nil {
					return &spec.HarnessError{Err: err}
				}
			}
			// Whatever is answered after the stray packet has passed the node after it.
			if err := w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}}); err != nil {
				return err
			}
			counted, err := count()
			if err != nil {
				return err
			}
			var errs []error
			for _, state := range []string{"new", "established", "related", "invalid"} {
				if n := len(w.Lab().Stack().Families()); counted[state] < n {
					errs = append(errs, fmt.Errorf("n1 saw %d packets in state %s, not at least %d", counted[state], state, n))
				}
			}
			return errors.Join(errs...)
		}}},
	}
}

// strayReset sends from c1 to a2 a RST that belongs to no connection: conntrack has no state for that but INVALID.
func strayReset(w spec.World, family lab.Family) error {
	from, err := w.Resolve(spec.HostAt("c1", 50000), family, "tcp")
	if err != nil {
		return err
	}
	to, err := w.Resolve(spec.HostAt("a2", 8080), family, "tcp")
	if err != nil {
		return err
	}
	return send(w, "c1", traffic.Segment{Src: from, Dst: to, Seq: 1, RST: true})
}

func send(w spec.World, host string, s traffic.Segment) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	packet, err := s.Packet()
	if err != nil {
		return err
	}
	return traffic.SendRaw(h.NS, packet)
}
