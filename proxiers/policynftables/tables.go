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

// tableName is that of all tables of the enforcer.
const tableName = "network-policy"

// tables are those of a node.
type tables struct {
	policies *table
	sources  *table // nil: they are in policies
}

func openTables(ns *netns.NS, pods lab.PodNetwork, ranges []netip.Prefix) (*tables, error) {
	t := &tables{}
	kernel, err := nft.Open(ns, knftables.InetFamily, tableName)
	if err != nil {
		return nil, err
	}
	t.policies = &table{Table: kernel, frame: policyFrame(ranges)}
	if pods == lab.Routed {
		t.policies.frame.addSources(routedPorts)
		return t, nil
	}
	if kernel, err = nft.Open(ns, knftables.BridgeFamily, tableName); err != nil {
		return nil, err
	}
	t.sources = &table{Table: kernel}
	t.sources.frame.addSources("")
	return t, nil
}

// Program implements policy.Mechanism. A pod is isolated before packets from its port are let in.
func (t *tables) Program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	chains, elements := render(want)
	if t.sources == nil {
		return t.policies.program(ctx, chains, append(elements, portElements(ports)...))
	}
	if err := t.policies.program(ctx, chains, elements); err != nil {
		return err
	}
	return t.sources.program(ctx, nil, portElements(ports))
}

// each does something with each table.
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

// Release implements policy.Mechanism. Programs that have ended hold nothing.
func (t *tables) Release() {}

// Remove implements policy.Mechanism.
func (t *tables) Remove(ctx context.Context) error {
	return t.each(func(t *table) error {
		t.held = nil
		tx := t.Transaction()
		nft.Destroy(tx)
		return t.Run(ctx, tx)
	})
}
