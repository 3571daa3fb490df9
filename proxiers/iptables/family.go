// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
)

// family is the mechanism of one IP family of a node.
type family struct {
	backend  Backend
	programs *xtables.Programs
	rules    nodeRules
	renderer renderer
	clients  *dnat.Clients

	// held is what the kernel holds. Nil means unknown: the next change writes everything.
	held *ledger
	// alone is set if no table existed before everything was written, so that Remove has to remove only held.
	alone bool
}

func newFamily(node kit.Site, b Backend) (*family, error) {
	ip := node.Family
	programs, err := xtables.Find(node.Host.NS, b, ip, node.StateDir)
	if err != nil {
		return nil, err
	}
	liberal, err := tracksLiberally(node.Host.NS)
	if err != nil {
		return nil, err
	}
	clients, err := dnat.OpenClients(node.Host.NS, ip)
	if err != nil {
		return nil, err
	}
	_, withoutRandom := lacksRandomFully.Load(variant{b, ip})
	return &family{
		backend:  b,
		programs: programs,
		clients:  clients,
		rules: nodeRules{
			family:      ip,
			mark:        node.Config.MasqueradeMark(),
			localhost:   ip == lab.V4 && nodeaddr.ServesLocalhost(node.Config),
			randomFully: !withoutRandom,
			liberal:     liberal,
			podRange:    nodeaddr.FirstOfFamily(node.ClusterCIDRs, ip),
		},
		renderer: renderer{
			chains:        dnat.Chains{NodePods: nodeaddr.FirstOfFamily(node.PodCIDRs, ip)},
			podRange:      nodeaddr.FirstOfFamily(node.ClusterCIDRs, ip),
			nodeAddr:      node.Host.Addr(ip),
			masqueradeAll: node.Config.MasqueradeAll,
		},
	}, nil
}

// tracksLiberally reports whether connection tracking accepts out-of-window TCP segments as valid.
func tracksLiberally(ns *netns.NS) (bool, error) {
	v, err := ns.Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // connection tracking is not loaded yet, and its default is 0
	}
	return v == "1", err
}

// Program implements kit.Mechanism. It creates a set of clients before the rules that name it, and destroys it after
// them.
func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	tail := f.rules.nodePortEntry(at.NodePorts)
	held := f.held
	if held != nil && state == held.State && slices.Equal(tail, held.tail) {
		_, err := f.clients.Discard()
		return err
	}
	f.held = nil // until the kernel has accepted the change
	f.renderer.chains.Terse = dnat.Crowded(state)
	var c *xtables.Change
	if held != nil {
		c = held.update(state, tail, &f.renderer)
	} else {
		tables, err := f.programs.Save(ctx)
		if err != nil {
			return err
		}
		if err := f.clients.Load(); err != nil {
			return err
		}
		held, f.alone = &ledger{}, len(tables) == 0
		c = held.rebuild(state, tail, &f.renderer, &f.rules, tables)
	}
	if err := f.clients.Prepare(state.Services...); err != nil {
		return err
	}
	if err := f.programs.Restore(ctx, c.Transactions(f.backend)...); err != nil {
		return err
	}
	if _, err := f.clients.Discard(); err != nil {
		return err
	}
	f.held = held
	return nil
}

// Remove implements kit.Mechanism. It reads the tables only if the kernel may hold more than held, or if rules of other
// programs depend on its chains.
func (f *family) Remove(ctx context.Context) error {
	held := f.held
	f.held = nil
	if err := f.removeRules(ctx, held); err != nil {
		return err
	}
	return f.clients.Remove(ctx)
}

// removeRules removes the chains and the jumps to them. held is what the kernel holds, nil if that is unknown.
func (f *family) removeRules(ctx context.Context, held *ledger) error {
	own := owned(f.backend)
	if held != nil && f.alone {
		var all []*xtables.Transaction
		for t, saved := range held.tables(&f.rules) {
			all = append(all, own.Removal(t, saved)...)
		}
		if f.programs.Restore(ctx, all...) == nil {
			return nil
		}
	}
	return own.Remove(ctx, f.programs)
}

// owned describes what belongs to this proxier, from this or any earlier instance.
func owned(b Backend) xtables.Ownership {
	return xtables.Ownership{
		Backend: b, Tables: []xtables.TableName{xtables.NAT, xtables.Filter},
		Chain: func(_ xtables.TableName, name string) bool { return ours(name) },
	}
}

// Release implements kit.Mechanism.
func (f *family) Release() error {
	f.programs.Close()
	return f.clients.Close()
}

// Remarks implements kit.Remarker.
func (f *family) Remarks() map[string]string { return f.held.purposes() }

// Dump implements kit.Mechanism.
func (f *family) Dump(ctx context.Context) ([]byte, error) {
	sets, err := f.clients.Dump()
	if err != nil {
		return nil, err
	}
	text, err := f.programs.SaveText(ctx, xtables.Filter, xtables.NAT)
	if err != nil {
		return nil, err
	}
	return append(sets, xtables.Annotate(text, f.held.purposes(), nil)...), nil
}
