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

// tables are the tables of a node.
type tables struct {
	policies *table
	sources  *table // nil: policies holds the sources too
}

func openTables(ns *netns.NS, pods lab.PodNetwork, ranges []netip.Prefix) (*tables, error) {
	t := &tables{}
	kernel, err := nft.Open(ns, knftables.InetFamily, tableName)
	if err != nil {
		return nil, err
	}
	t.policies = &table{Table: kernel, frame: policyFrame(ranges)}
	if pods == lab.Routed {
		addSources(&t.policies.frame, routedPorts)
		return t, nil
	}
	if kernel, err = nft.Open(ns, knftables.BridgeFamily, tableName); err != nil {
		return nil, err
	}
	t.sources = &table{Table: kernel}
	addSources(&t.sources.frame, "")
	return t, nil
}

// Program implements policy.Mechanism. A pod is isolated before packets from its port are let in.
func (t *tables) Program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	parts := render(want)
	if t.sources == nil {
		parts.Elements = append(parts.Elements, portElements(ports)...)
		return t.policies.program(ctx, parts)
	}
	if err := t.policies.program(ctx, parts); err != nil {
		return err
	}
	return t.sources.program(ctx, &nft.Parts{Elements: portElements(ports)})
}

// each runs do for each table.
func (t *tables) each(do func(*table) error) error {
	err := do(t.policies)
	if t.sources != nil {
		err = errors.Join(err, do(t.sources))
	}
	return err
}

// Dump implements policy.Mechanism.
func (t *tables) Dump(ctx context.Context) (all []byte, err error) {
	err = t.each(func(t *table) error {
		text, err := t.Text(ctx)
		all = append(all, text...)
		return err
	})
	return all, err
}

// Release implements policy.Mechanism. The programs run only during a call, so there is nothing to end.
func (t *tables) Release() {}

// Remove implements policy.Mechanism.
func (t *tables) Remove(ctx context.Context) error {
	return t.each(func(t *table) error {
		t.held = nil
		return t.Table.Remove(ctx)
	})
}
