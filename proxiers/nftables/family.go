// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nfquery"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
)

// family is the mechanism of one IP family of a node.
type family struct {
	table    *nft.Table
	frame    *nft.Frame
	settings settings

	// held is what the kernel holds. Nil means unknown: the next change writes everything.
	held *ledger
}

// tableName is the same as in kube-proxy. Only one of the two can serve a node, and people look for this table.
const tableName = "kube-proxy"

func newFamily(ns *netns.NS, s settings) (*family, error) {
	t, err := nft.Open(ns, knftables.Family(nft.Word(s.family)), tableName)
	return &family{table: t, frame: s.frame(), settings: s}, err
}

func familyOf(site kit.Site) (*family, error) {
	ip := site.Family
	return newFamily(site.Host.NS, settings{
		family: ip, nodeAddr: site.Host.Addr(ip), masquerade: site.Config.MasqueradeAll,
		podRange: nodeaddr.FirstOfFamily(site.ClusterCIDRs, ip),
		nodePods: nodeaddr.FirstOfFamily(site.PodCIDRs, ip),
		services: nodeaddr.OfFamily(site.ServiceCIDRs, ip),
	})
}

func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	r := renderer{f.settings, at.ReachableNodePorts()}
	held := f.held
	if held == nil {
		return f.programAll(ctx, state, r)
	}
	if state == held.State && slices.Equal(r.nodePorts, held.nodePorts) {
		return nil
	}
	f.held = nil // until the kernel has accepted the change
	gone, come := held.update(state, r)
	txs := f.table.Change(gone, come)
	var former []string
	for _, c := range gone.Containers {
		former = append(former, c.Name)
	}
	if err := f.keepClients(txs[len(txs)-1], former, come.Containers); err != nil {
		return err
	}
	if err := f.table.RunAny(ctx, txs); err != nil {
		return err
	}
	f.held = held
	return nil
}

// programAll writes everything and replaces whatever the kernel holds.
func (f *family) programAll(ctx context.Context, state *model.State, r renderer) error {
	next := newLedger()
	_, all := next.update(state, r)
	former, err := f.table.Holdings(ctx)
	if err != nil {
		return err
	}
	ways := f.ways(former, all)
	if err := f.keepClients(ways[0][len(ways[0])-1], former["set"], all.Containers); err != nil {
		return err
	}
	if err := f.table.RunAny(ctx, ways...); err != nil {
		return err
	}
	f.held = next
	return nil
}

// clients returns the clients in a set, and how long the kernel remembers each of them.
func (f *family) clients(set string) (map[netip.Addr]time.Duration, error) {
	return nfquery.Lifetimes(f.table.NS, f.settings.family, tableName, set)
}

// keepClients adds to a transaction the clients of endpoints whose sets come with another timeout. It counts, as for
// all clients, from their last connection.
func (f *family) keepClients(tx *knftables.Transaction, former []string, come []nft.Container) error {
	before := map[string]string{} // the names of sets by their endpoints
	for _, name := range former {
		if endpoint, _, ok := cutTimeout(name); ok {
			before[endpoint] = name
		}
	}
	for _, c := range come {
		endpoint, timeout, ok := cutTimeout(c.Name)
		set, had := before[endpoint]
		if !ok || !had || set == c.Name {
			continue
		}
		clients, err := f.clients(set)
		if err != nil {
			return err
		}
		_, formerTimeout, _ := cutTimeout(set)
		for addr, left := range clients {
			if left += timeout - formerTimeout; left > 0 {
				tx.Add(nft.Element{In: c.Name, Key: addr.String(), Expires: left}.Object())
			}
		}
	}
	return nil
}

func (f *family) Remove(ctx context.Context) error {
	f.held = nil
	return f.table.Remove(ctx)
}

func (f *family) Dump(ctx context.Context) ([]byte, error) { return f.table.Text(ctx) }

// Release implements kit.Mechanism. The programs run only during a call, so there is nothing to close.
func (f *family) Release() error { return nil }
