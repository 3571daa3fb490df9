// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/usable"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// probes remembers the families that work.
var probes usable.Memory[lab.Family, struct{}]

// probe finds out whether nft and the kernel take our rules, by giving them some in an empty namespace.
func probe(ctx context.Context, f lab.Family) error {
	_, err := probes.Try(f, func() (struct{}, error) {
		return struct{}{}, usable.InEmptyNamespace(func(ns *netns.NS, _ string) error { return try(ctx, f, ns) })
	})
	return err
}

func try(ctx context.Context, f lab.Family, ns *netns.NS) error {
	t, err := openTable(ns, f)
	if err != nil {
		return err
	}
	err = sample(ctx, t, f)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: fmt.Sprintf("the expressions of nftables that Service rules for IP%s are made of", f),
		Cure: fmt.Sprintf("take nft 1.0.6 or later and Linux 5.13 or later, with the modules that are asked for (%v)",
			err),
	}
}

// sample is the first sync of a node whose Services use every expression there is.
func sample(ctx context.Context, t *nft.Table, f lab.Family) error {
	plain, pods := usable.Sample(f)
	plain.ID.Name, plain.Affinity, plain.HealthCheckPort = "plain", 0, 0
	sticky := *plain
	sticky.ID.Name, sticky.Number, sticky.NodePort, sticky.Affinity = "sticky", 81, 30081, time.Minute
	nobody := &model.Port{ID: model.PortID{Namespace: "probe", Name: "nobody", Protocol: "UDP"}, Number: 53,
		ClusterIP: plain.ClusterIP}
	state := &model.State{Services: []*model.Service{{Name: "probe", Ports: []*model.Port{plain, &sticky, nobody}}}}
	s := &family{
		table:    t,
		frame:    frame{family: f, podRange: pods, services: []netip.Prefix{pods}},
		renderer: renderer{family: f},
	}
	return s.programAll(ctx, state, s.renderer)
}
