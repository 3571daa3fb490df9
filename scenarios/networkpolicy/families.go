// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// families are the scenarios of what IPv4 and IPv6 have of their own.
func families() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:       "np-block-of-one-family",
			Families: []lab.Family{lab.V4, lab.V6},
			Needs:    enforced,
			Given: four(
				policy("four", pod("a1"), ingress(allow(block("0.0.0.0/0")))),
				policy("six", pod("b1"), ingress(allow(block("::/0")))),
				policy("out", pod("c2"), egress(allow(block("0.0.0.0/0")))),
			),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b2", To: spec.HostAt("a1", 8080), Family: lab.V4, By: []string{"a1"}},
				{From: "b2", To: spec.HostAt("a1", 8080), Family: lab.V6, Want: denied},
				{From: "b2", To: spec.HostAt("b1", 8080), Family: lab.V4, Want: denied},
				{From: "b2", To: spec.HostAt("b1", 8080), Family: lab.V6, By: []string{"b1"}},
				{From: "c2", To: spec.HostAt("b2", 8080), Family: lab.V4, By: []string{"b2"}},
				{From: "c2", To: spec.HostAt("b2", 8080), Family: lab.V6, Want: denied},
			}}},
		},
		{
			ID: "np-neighbour-discovery", Cluster: &spec.ClusterConfig{},
			Needs: enforced,
			Given: four(zeroTrust()...),
			Steps: []spec.Step{{
				Name: "nobody knows anybody", Do: do(forgetNeighbours("a1", "b1", "b2", "c2")),
				Rows: []spec.Row{
					{From: "a1", To: spec.HostAt("b2", 8080), By: []string{"b2"}},
					{From: "n1", To: spec.HostAt("a1", 8080), By: []string{"a1"}},
					{From: "b1", To: spec.HostAt("a1", 8080), Want: denied},
				},
			}},
		},
	}
}

// forgetNeighbours empties the tables in which pods, and their nodes for them, have the hardware addresses of
// neighbours, and with them what the lab has written there by hand.
func forgetNeighbours(names ...string) spec.Action {
	return spec.Action{Name: "forget neighbours", Run: func(_ context.Context, w spec.World) error {
		for _, name := range names {
			p := w.Lab().Pod(w.Namespace() + "/" + name)
			if p == nil {
				return fmt.Errorf("there is no pod %s", name)
			}
			if err := forget(&p.Host, nil); err != nil {
				return err
			}
			if err := forget(&p.Node().Host, p); err != nil {
				return err
			}
		}
		return nil
	}}
}

// forget deletes the neighbours of a host, or the one that is the pod.
func forget(h *lab.Host, pod *lab.Pod) error {
	all, err := netns.List(func() ([]netlink.Neigh, error) { return h.Netlink().NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("%s: neighbours: %w", h.Name(), err)
	}
	for _, n := range all {
		if n.IP == nil || n.State == netlink.NUD_NOARP || pod != nil && !n.IP.Equal(pod.Addr(lab.V4).AsSlice()) &&
			!n.IP.Equal(pod.Addr(lab.V6).AsSlice()) {
			continue
		}
		if err := h.Netlink().NeighDel(&n); err != nil {
			return fmt.Errorf("%s: forget %s: %w", h.Name(), n.IP, err)
		}
	}
	return nil
}
