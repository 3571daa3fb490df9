package nftables

import (
	"context"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/internal/keeper"
	"github.com/viplab/viplab/proxiers/internal/nodeaddr"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// family is the mechanism of one IP family of a node.
type family struct {
	table    *table
	frame    frame
	renderer renderer

	// held is what the kernel holds; nil means that this is not known, and that everything is to be written.
	held *ledger
}

func newFamily(node spec.Node, ip lab.Family) (*family, error) {
	t, err := openTable(node.Host.NS, ip)
	if err != nil {
		return nil, err
	}
	return &family{
		table: t,
		frame: frame{
			family:     ip,
			podRange:   nodeaddr.OfFamily(node.ClusterCIDRs, ip),
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

// Program implements keeper.Mechanism.
func (f *family) Program(ctx context.Context, state *model.State, at keeper.Place) error {
	r := f.renderer
	r.nodePorts = nodePortAddrs(at)
	held := f.held
	if held == nil {
		return f.programAll(ctx, state, r)
	}
	if state == held.state && r.equal(held.renderer) {
		return nil
	}
	f.held = nil // until the kernel has taken the change
	tx := f.table.nft.NewTransaction()
	gone, come := held.update(state, r)
	write(tx, r.family, gone, come)
	if err := f.table.run(ctx, tx); err != nil {
		return err
	}
	f.held = held
	return nil
}

// programAll writes everything, in place of whatever there is. The clients that endpoints remember are kept, unless the
// kernel does not take that: then something is in the table that is not as this proxier would have made it.
func (f *family) programAll(ctx context.Context, state *model.State, r renderer) error {
	next := newLedger(r)
	_, all := next.update(state, r)
	former, err := f.table.holdings(ctx)
	if err != nil {
		return err
	}
	tx := f.table.nft.NewTransaction()
	f.frame.refill(tx, former, all)
	if err = f.table.run(ctx, tx); err != nil && former != nil && ctx.Err() == nil {
		tx = f.table.nft.NewTransaction()
		destroy(tx)
		f.frame.refill(tx, nil, all)
		err = f.table.run(ctx, tx)
	}
	if err != nil {
		return err
	}
	f.held = next
	return nil
}

// Remove implements keeper.Mechanism.
func (f *family) Remove(ctx context.Context) error {
	f.held = nil
	tx := f.table.nft.NewTransaction()
	destroy(tx)
	return f.table.run(ctx, tx)
}

// Dump implements keeper.Mechanism.
func (f *family) Dump(ctx context.Context) ([]byte, error) { return f.table.text(ctx) }

// destroy deletes the table, and does not mind if there is none.
func destroy(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
}

// refill makes the table hold the frame and all the parts, and of the former holdings only sets of clients that are still
// of use. It is one transaction: a packet meets the former rules, or the new ones.
func (f *frame) refill(tx *knftables.Transaction, former map[string][]string, all parts) {
	tx.Add(&knftables.Table{})
	if former != nil {
		tx.Flush(&knftables.Table{}) // its rules
	}
	ours := map[string]bool{}
	for _, c := range all.containers {
		ours[c.name] = c.timeout > 0
	}
	for _, kind := range []string{"set", "map"} {
		for _, name := range former[kind] {
			if !ours[name] {
				drop(tx, kind, name)
			}
		}
	}
	for _, name := range former["chain"] {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, o := range f.containers() {
		tx.Add(o)
	}
	for _, c := range baseChains() {
		tx.Add(&knftables.Chain{Name: c.name, Type: &c.kind, Hook: &c.hook, Priority: &c.priority})
	}
	all.chains = slices.Concat(f.chains(), all.chains)
	write(tx, f.family, parts{}, all)
	for _, c := range baseChains() {
		for _, rule := range c.rules {
			tx.Add(&knftables.Rule{Chain: c.name, Rule: rule})
		}
	}
}

// drop deletes a set or map. Kernels before 6.4 let go of the chains that a map's elements lead to only as the elements are
// deleted, hence the flush.
func drop(tx *knftables.Transaction, kind, name string) {
	var o knftables.Object = &knftables.Set{Name: name}
	if kind == "map" {
		o = &knftables.Map{Name: name}
	}
	tx.Flush(o)
	tx.Delete(o)
}

// nodePortAddrs are the addresses on which NodePorts are served: every one of the node that others can reach, if nothing
// else was asked for.
func nodePortAddrs(at keeper.Place) []netip.Addr {
	all := at.NodePorts
	if all == nil {
		all = at.Local
	}
	return slices.DeleteFunc(slices.Clone(all), netip.Addr.IsLoopback)
}

// ofFamily are the ranges of a family.
func ofFamily(all []netip.Prefix, f lab.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return lab.FamilyOf(p.Addr()) != f })
}
