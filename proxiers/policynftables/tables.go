// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"context"
	"errors"
	"net/netip"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// tableName is the name of all tables of the enforcer.
const tableName = "network-policy"

// tables are the tables of a node: that of policies, and that of sources unless the first one holds them too.
type tables []*table

func openTables(ns *netns.NS, pods lab.PodNetwork, ranges []netip.Prefix) (tables, error) {
	policies, err := nft.Open(ns, knftables.InetFamily, tableName)
	if err != nil {
		return nil, err
	}
	t := tables{{Table: policies, frame: policyFrame(ranges)}}
	if pods == lab.Routed {
		addSources(&t[0].frame, routedPorts)
		return t, nil
	}
	sources, err := nft.Open(ns, knftables.BridgeFamily, tableName)
	if err != nil {
		return nil, err
	}
	t = append(t, &table{Table: sources})
	addSources(&t[1].frame, "")
	return t, nil
}

// Program implements policy.Mechanism. A pod is isolated before packets from its port are let in.
func (t tables) Program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	parts := render(want)
	if len(t) == 1 {
		parts.Elements = append(parts.Elements, portElements(ports)...)
		return t[0].program(ctx, parts)
	}
	if err := t[0].program(ctx, parts); err != nil {
		return err
	}
	return t[1].program(ctx, &nft.Parts{Elements: portElements(ports)})
}

func (t tables) Dump(ctx context.Context) (all []byte, err error) {
	for _, one := range t {
		text, failed := one.Text(ctx)
		all, err = append(all, text...), errors.Join(err, failed)
	}
	return all, err
}

// Release implements policy.Mechanism. The programs run only during a call, so there is nothing to end.
func (t tables) Release() {}

func (t tables) Remove(ctx context.Context) (err error) {
	for _, one := range t {
		one.held = nil
		err = errors.Join(err, one.Table.Remove(ctx))
	}
	return err
}
