// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/usable"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// probes remembers the pod networks for which it works.
var probes usable.Memory[lab.PodNetwork, struct{}]

// probe finds out whether nft and the kernel take our rules, by giving them some in an empty namespace.
func probe(ctx context.Context) error {
	for _, pods := range []lab.PodNetwork{lab.Bridge, lab.Routed} {
		_, err := probes.Try(pods, func() (struct{}, error) {
			return struct{}{}, usable.InEmptyNamespace(func(ns *netns.NS, _ string) error { return try(ctx, ns, pods) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func try(ctx context.Context, ns *netns.NS, pods lab.PodNetwork) error {
	addr := netip.MustParseAddr("192.0.2.1")
	t, err := openTables(ns, pods, []netip.Prefix{netip.PrefixFrom(addr, 24), netip.MustParsePrefix("2001:db8::/64")})
	if err != nil {
		return err
	}
	err = t.Program(ctx, policy.Sample(addr), policy.Ports{addr: "probe"})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: "the expressions of nftables that policies are made of",
		Cure: fmt.Sprintf("take nft 1.0.6 or later and Linux 5.13 or later, with the modules that are asked for (%v)",
			err),
	}
}
