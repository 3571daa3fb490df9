// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
)

// family is the mechanism of one IP family of a node.
type family struct {
	table    *nft.Table
	frame    frame
	renderer renderer

	// held is what the kernel holds; nil means that this is not known, and that everything is to be written.
	held *ledger
}

// tableName is that of kube-proxy's table: the two could not serve one node together anyway, and people look there.
const tableName = "kube-proxy"

func openTable(ns *netns.NS, ip lab.Family) (*nft.Table, error) {
	if ip == lab.V6 {
		return nft.Open(ns, knftables.IPv6Family, tableName)
	}
	return nft.Open(ns, knftables.IPv4Family, tableName)
}

func newFamily(node kit.Site) (*family, error) {
	ip := node.Family
	t, err := openTable(node.Host.NS, ip)
	if err != nil {
		return nil, err
	}
	return &family{
		table: t,
		frame: frame{
			family:     ip,
			podRange:   nodeaddr.OfFamily(node.ClusterCIDRs, ip),
			nodePods:   nodeaddr.OfFamily(node.PodCIDRs, ip),
			services:   ofFamily(node.ServiceCIDRs, ip),
			masquerade: node.Config.MasqueradeAll,
		},
		renderer: renderer{
			family:   ip,
			podRange: nodeaddr.OfFamily(node.PodCIDRs, ip),
			nodeAddr: node.Host.Addr(ip),
		},
	}, nil
}

// Program implements kit.Mechanism.
func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	r := f.renderer
	r.nodePorts = at.ReachableNodePorts()
	held := f.held
	if held == nil {
		return f.programAll(ctx, state, r)
	}
	if state == held.state && r.equal(held.renderer) {
		return nil
	}
	f.held = nil // until the kernel has taken the change
	tx := f.table.Transaction()
	gone, come := held.update(state, r)
	write(tx, r.family, gone, come)
	if err := f.table.Run(ctx, tx); err != nil {
		return err
	}
	f.held = held
	return nil
}

// programAll writes everything, in place of whatever there is.
func (f *family) programAll(ctx context.Context, state *model.State, r renderer) error {
	next := newLedger(r)
	_, all := next.update(state, r)
	former, err := f.table.Holdings(ctx)
	if err != nil {
		return err
	}
	for _, way := range f.ways(former, all) {
		if err = f.runAll(ctx, way); err == nil {
			f.held = next
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (f *family) runAll(ctx context.Context, all []*knftables.Transaction) error {
	for _, tx := range all {
		if err := f.table.Run(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements kit.Mechanism.
func (f *family) Remove(ctx context.Context) error {
	f.held = nil
	tx := f.table.Transaction()
	nft.Destroy(tx)
	return f.table.Run(ctx, tx)
}

// Dump implements kit.Mechanism.
func (f *family) Dump(ctx context.Context) ([]byte, error) { return f.table.Text(ctx) }

// Release implements kit.Mechanism. Programs that have ended hold nothing.
func (f *family) Release() error { return nil }

// ofFamily are the ranges of a family.
func ofFamily(all []netip.Prefix, f lab.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return lab.FamilyOf(p.Addr()) != f })
}
