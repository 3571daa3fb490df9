// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func egressInterface() spec.Scenario {
	return spec.Scenario{
		ID:    "masq-source-is-egress-interface",
		Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
		Given: []store.Object{
			Backend("a1", "n1"), Backend("a2", "n2", App("far")), Service("web", NodePort()), Service("far", NodePort()),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			caught, err := Catch(w, func() error {
				return w.Expect(ctx,
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a1"}, SeenAs: spec.EgressOf("n1")},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "far", 80), By: []string{"a2"}, SeenAs: spec.EgressOf("n1")},
				)
			}, "n2")
			if err != nil {
				return err
			}
			for _, family := range w.Lab().Stack().Families() {
				if err := arrivesFrom(w, caught, family); err != nil {
					return err
				}
			}
			return nil
		}}},
	}
}

// arrivesFrom wants the first packet to a2 to have come to n2's network card from n1's, whatever carried it.
func arrivesFrom(w spec.World, caught []Caught, family lab.Family) error {
	pod, err := w.Resolve(spec.HostAt("a2", 8080), family, "tcp")
	if err != nil {
		return err
	}
	source := w.Lab().Node("n1").EgressAddr(pod.Addr())
	for _, c := range caught {
		p := c.Innermost()
		if c.Direction != observe.In || c.Device != "eth0" || p.Dst != pod || p.Flags != "SYN" {
			continue
		}
		if p.Src.Addr() != source {
			return fmt.Errorf("the packet to %s leaves n1 with the source %s, not that of its interface, %s", pod, p.Src, source)
		}
		if c.Inner != nil && w.Lab().Node("n1").Addr(lab.FamilyOf(c.Src.Addr())) != c.Src.Addr() {
			return fmt.Errorf("the packet to %s reaches n2 in a tunnel from %s, which is not n1", pod, c.Src)
		}
		return nil
	}
	return fmt.Errorf("no packet to %s reaches n2", pod)
}

// markCleared has a cluster of its own, because it counts marked packets and turns checksum offload off.
func markCleared() spec.Scenario {
	return spec.Scenario{
		ID: "masq-mark-cleared", NeedsOverlay: true,
		Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs:   []spec.Feature{spec.NodePort, spec.KernelNAT, spec.MasqueradeMark},
		Given:   []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			if err := observe.DisableOffloads(w.Lab().Client().NS, "eth0"); err != nil {
				return &spec.HarnessError{Err: err}
			}
			count, err := Count(ctx, w, "n1", markedPackets...)
			if err != nil {
				return err
			}
			caught, err := Catch(w, func() error {
				return w.Expect(ctx, spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"},
					SeenAs: spec.NodeAddr("n1")})
			}, "n2")
			if err != nil {
				return err
			}
			counted, err := count()
			if err != nil {
				return err
			}
			if err := marksAreGone(counted); err != nil {
				return err
			}
			for _, family := range w.Lab().Stack().Families() {
				pod, err := w.Resolve(spec.HostAt("a2", 8080), family, "tcp")
				if err != nil {
					return err
				}
				if err := outerIsIntact(w, caught, pod); err != nil {
					return err
				}
			}
			return nil
		}}},
	}
}

// markedPackets count what carries the mark before and after the nat table's postrouting hook (priority srcnat, 100).
var markedPackets = []Counter{
	{Name: "before", Hook: "postrouting", Priority: 99, Match: "meta mark and 0x4000 == 0x4000"},
	{Name: "after", Hook: "postrouting", Priority: 101, Match: "meta mark and 0x4000 == 0x4000"},
}

func marksAreGone(counted map[string]int) error {
	switch {
	case counted["before"] == 0:
		return errors.New("no packet that was masqueraded had been marked with 0x4000")
	case counted["after"] > 0:
		return fmt.Errorf("%d packets still carry the mark 0x4000 after masquerading", counted["after"])
	}
	return nil
}

func outerIsIntact(w spec.World, caught []Caught, pod netip.AddrPort) error {
	n1 := w.Lab().Node("n1")
	carried := 0
	for _, c := range caught {
		if c.Direction != observe.In || c.Device != "eth0" || c.Inner == nil || c.Innermost().Dst != pod {
			continue
		}
		carried++
		if outer := c.Src.Addr(); n1.Addr(lab.FamilyOf(outer)) != outer {
			return fmt.Errorf("the outer packet comes from %s, not from n1's address", outer)
		}
		if err := c.Innermost().VerifyChecksums(); err != nil {
			return err
		}
	}
	if carried == 0 {
		return fmt.Errorf("no tunnel packet with a packet to %s reached n2", pod)
	}
	return nil
}
