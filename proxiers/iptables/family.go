// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

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

	// done is what the kernel holds. Nil means unknown: the next change writes everything.
	done *desired
	// alone is set if there was no table when everything was written: what done holds is all that there is to remove.
	alone bool
}

func newFamily(node kit.Site, b Backend) (*family, error) {
	ip := node.Family
	programs, err := xtables.Find(node.Host.NS, b, ip, filepath.Join(node.StateDir, "xtables-"+ip.String()+".lock"))
	if err != nil {
		return nil, err
	}
	liberal, err := tracksLiberally(node.Host.NS)
	if err != nil {
		return nil, err
	}
	_, withoutRandom := lacksRandomFully.Load(variant{b, ip})
	return &family{
		backend:  b,
		programs: programs,
		rules: nodeRules{
			family:      ip,
			localhost:   ip == lab.V4 && nodeaddr.ServesLocalhost(node.Config),
			randomFully: !withoutRandom,
			liberal:     liberal,
		},
		renderer: renderer{
			podRange:      nodeaddr.OfFamily(node.ClusterCIDRs, ip),
			nodePods:      nodeaddr.OfFamily(node.PodCIDRs, ip),
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

// Program implements kit.Mechanism.
func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	tail := f.rules.nodePortEntry(at.NodePorts)
	if f.done != nil && state == f.done.state && slices.Equal(tail, f.done.tail) {
		return nil
	}
	f.renderer.terse = crowded(state)
	if f.done == nil {
		return f.programAll(ctx, state, tail)
	}
	next, gone, come := f.done.next(state, tail, &f.renderer)
	return f.commit(ctx, next, delta(gone, come, f.done.tail, tail))
}

// programAll writes everything, whatever the kernel holds.
func (f *family) programAll(ctx context.Context, state *model.State, tail []xtables.Rule) error {
	tables, err := f.programs.Save(ctx)
	if err != nil {
		return err
	}
	f.alone = len(tables) == 0
	next, _, _ := (&desired{}).next(state, tail, &f.renderer)
	return f.commit(ctx, next, rebuild(next, &f.rules, tables))
}

// commit applies the change to next. Until that succeeds, done is unknown.
func (f *family) commit(ctx context.Context, next *desired, c *xtables.Change) error {
	f.done = nil
	if err := f.programs.Restore(ctx, c.Transactions(f.backend)...); err != nil {
		return err
	}
	f.done = next
	return nil
}

// Remove implements kit.Mechanism. It reads what the kernel holds only if that may be more than what it wrote, or if
// others have made rules that depend on it.
func (f *family) Remove(ctx context.Context) error {
	own, done := owned(f.backend), f.done
	f.done = nil
	if done != nil && f.alone {
		var all []*xtables.Transaction
		for t, held := range done.tables(&f.rules) {
			all = append(all, own.Removal(t, held)...)
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

// Release implements kit.Mechanism. The programs run only during a call, so there is nothing to close.
func (f *family) Release() error { return nil }

// Dump implements kit.Mechanism.
func (f *family) Dump(ctx context.Context) ([]byte, error) {
	var all []byte
	for _, t := range []xtables.TableName{xtables.Filter, xtables.NAT} {
		text, err := f.programs.SaveText(ctx, t)
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	return f.done.annotate(all), nil
}
