// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// routeLocalnet makes 127.0.0.0/8 routable, so that a packet to 127.0.0.1 can be translated and leave the node.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// instance is the proxier on one node.
type instance struct {
	*keeper.Keeper
	families []*family
}

func newInstance(ctx context.Context, b Backend, node spec.Node) (*instance, error) {
	in := &instance{}
	settings := conntrack.Timeouts()
	var mechanisms []keeper.Mechanism
	for _, ip := range node.Families {
		can, err := probe(ctx, b, ip)
		if err != nil {
			return nil, err
		}
		f, err := newFamily(node, ip, b, can)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", node.Name, err)
		}
		if f.rules.localhost {
			settings = append(settings, netns.Setting{Key: routeLocalnet, Value: "1"})
		}
		in.families = append(in.families, f)
		mechanisms = append(mechanisms, f)
	}
	var err error
	in.Keeper, err = keeper.New(node, keeper.Tracked, settings, mechanisms)
	return in, err
}
