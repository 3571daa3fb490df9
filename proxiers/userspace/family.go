// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
)

// family is the mechanism of one IP family of a node.
type family struct {
	ns       *netns.NS
	ip       lab.Family
	programs *xtables.Programs
	renderer renderer
	layout   xtables.Layout
	portals  portals
	tracking *conntrack.Cleaner

	// known is set if the kernel holds the rules of fragments.
	known bool
	// state and nodePorts are what fragments and portals were made for.
	state     *model.State
	nodePorts []netip.Addr
	fragments map[*model.Service]*xtables.Fragment
	// incomplete are the Services for which something could not be opened.
	incomplete map[*model.Service]bool
	// stale is set while connection tracking may hold UDP flows that lead nowhere.
	stale bool
}

func newFamily(node kit.Site) (*family, error) {
	ip := node.Family
	programs, err := xtables.Find(node.Host.NS, xtables.NFTables, ip, node.StateDir)
	if err != nil {
		return nil, err
	}
	f := &family{
		ns: node.Host.NS, ip: ip, programs: programs, tracking: conntrack.NewCleaner(node.Host.NS),
		layout:   layout(ip, ip == lab.V4 && nodeaddr.ServesLocalhost(node.Config)),
		renderer: renderer{nodePods: nodeaddr.FirstOfFamily(node.PodCIDRs, ip), nodeAddr: node.Host.Addr(ip)},
		portals: portals{
			sockets: sockets{node.Host.NS, ip, &ports{}}, at: relayAddrs[ip], log: node.Log.With("node", node.Name),
			events: node.Events,
		},
	}
	f.reset()
	return f, nil
}

// reset makes the family one that has programmed nothing.
func (f *family) reset() {
	f.known, f.state, f.nodePorts = false, &model.State{}, nil
	f.fragments, f.incomplete = map[*model.Service]*xtables.Fragment{}, map[*model.Service]bool{}
	f.portals.open = map[model.PortID]*portal{}
	f.portals.claims = newClaims(f.portals.sockets)
}

// Program implements kit.Mechanism. Sockets are opened before rules lead to them, and closed once none does.
func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	known := f.known
	everything := !known || !slices.Equal(f.nodePorts, at.NodePorts) || (f.nodePorts == nil) != (at.NodePorts == nil)
	gone, come := f.work(state, everything)
	if known && len(gone)+len(come) == 0 && !f.stale {
		f.state = state
		return nil
	}
	var held xtables.Tables
	if !known {
		var err error
		if held, err = f.begin(ctx); err != nil {
			return err
		}
	}
	fresh, failed := f.prepare(ctx, come, at.NodePorts)
	var swaps []kit.Swap[*xtables.Fragment]
	for was, is := range kit.Pairs(gone, come) {
		swaps = append(swaps, kit.Swap[*xtables.Fragment]{Old: f.fragments[was], New: fresh[is]})
	}
	f.adopt(state, at, gone, fresh)
	step := f.layout.Delta(swaps)
	if !known {
		step = f.rebuild(held)
	}
	f.known = false // until it has succeeded
	if err := f.programs.Restore(ctx, step.Transactions(xtables.NFTables)...); err != nil {
		return errors.Join(err, failed)
	}
	f.known = true
	f.settle(gone, come, everything)
	f.stale = f.stale || !known || conntrack.Concerns(gone) || conntrack.Concerns(come)
	return errors.Join(failed, f.forget(ctx, at.Local))
}

// forget takes UDP flows out of connection tracking that lead to no relay.
func (f *family) forget(ctx context.Context, local []netip.Addr) error {
	if !f.stale {
		return nil
	}
	err := f.tracking.Clean(ctx, f.wanted(local))
	f.stale = err != nil
	return err
}

// begin finds out what the kernel holds, and gives relays their address.
func (f *family) begin(ctx context.Context) (xtables.Tables, error) {
	held, err := f.programs.Save(ctx)
	if err != nil {
		return nil, err
	}
	f.portals.former = formerPorts(held.Of(xtables.NAT), f.portals.at)
	return held, addAddress(ctx, f.ns, f.portals.at)
}

// work lists the Services to be taken away and to be added: those that changed, and those that are not complete yet.
func (f *family) work(state *model.State, everything bool) (gone, come []*model.Service) {
	if everything {
		return f.state.Services, state.Services
	}
	gone, come = model.Diff(f.state, state)
	if len(f.incomplete) == 0 {
		return gone, come
	}
	changed := sets.New(gone...)
	for s := range f.incomplete {
		if !changed.Has(s) {
			gone, come = append(gone, s), append(come, s)
		}
	}
	slices.SortFunc(gone, model.Compare)
	slices.SortFunc(come, model.Compare)
	return gone, come
}

// prepare opens the sockets of Services and makes their rules. A Service that lacks something gets those for the rest.
func (f *family) prepare(ctx context.Context, come []*model.Service,
	nodePorts []netip.Addr) (map[*model.Service]*xtables.Fragment, error) {
	fresh := make(map[*model.Service]*xtables.Fragment, len(come))
	var failed error
	for _, s := range come {
		fragment := &xtables.Fragment{}
		fresh[s] = fragment
		delete(f.incomplete, s)
		for _, p := range s.Ports {
			if !relayed(p.ID.Protocol) {
				continue
			}
			w, held, err := f.portals.prepare(ctx, p, nodePorts)
			f.renderer.port(fragment, p, w, held)
			if !f.portals.complete(p.ID) {
				f.incomplete[s] = true
			}
			if failed == nil {
				failed = err // what one lacks, others are likely to lack too
			}
		}
	}
	return fresh, failed
}

// adopt makes a state the one that fragments are for.
func (f *family) adopt(state *model.State, at kit.Place, gone []*model.Service, fresh map[*model.Service]*xtables.Fragment) {
	for _, s := range gone {
		delete(f.fragments, s)
		if fresh[s] == nil {
			delete(f.incomplete, s)
		}
	}
	maps.Copy(f.fragments, fresh)
	f.state, f.nodePorts = state, at.NodePorts
}

// rebuild returns the change from whatever the tables hold.
func (f *family) rebuild(held xtables.Tables) *xtables.Change {
	var all []*xtables.Fragment
	for _, s := range f.state.Services {
		all = append(all, f.fragments[s])
	}
	return f.layout.Rebuild(all, held, entries)
}

// settle closes what rules have led to and do not any more: something of the Services that are gone, or anything.
func (f *family) settle(gone, come []*model.Service, everything bool) {
	ports, claimed := map[model.PortID]bool{}, map[claim]bool{}
	for _, s := range come {
		for _, p := range s.Ports {
			for _, c := range claimsOf(p, f.nodePorts, f.ip) {
				claimed[c] = true
			}
			if relayed(p.ID.Protocol) {
				ports[p.ID] = true
				f.portals.settle(p)
			}
		}
	}
	leavePort := func(id model.PortID) {
		if !ports[id] {
			f.portals.close(id)
		}
	}
	leaveClaim := func(c claim) {
		if !claimed[c] {
			f.portals.claims.release(c)
		}
	}
	if everything {
		for id := range f.portals.open {
			leavePort(id)
		}
		for c := range f.portals.claims.held {
			leaveClaim(c)
		}
		return
	}
	for _, s := range gone {
		for _, p := range s.Ports {
			leavePort(p.ID)
			for _, c := range claimsOf(p, f.nodePorts, f.ip) {
				leaveClaim(c)
			}
		}
	}
}

// wanted returns which UDP flows may stay: those that lead from frontends to their relays.
func (f *family) wanted(local []netip.Addr) *conntrack.Wanted {
	w := conntrack.NewWanted(local)
	w.Relays = f.portals.at
	for _, s := range f.state.Services {
		for _, p := range s.Ports {
			to := f.portals.doors(p.ID)
			if len(to) == 0 || p.ID.Protocol != corev1.ProtocolUDP {
				continue
			}
			served := *p
			if f.portals.open[p.ID].taken != "" {
				served.NodePort = 0
			}
			w.Add(&served, to)
		}
	}
	return w
}

// Remove implements kit.Mechanism.
func (f *family) Remove(ctx context.Context) error {
	err := owned.Remove(ctx, f.programs)
	return errors.Join(err, f.Release(), removeAddress(f.ns, f.portals.at))
}

// Release implements kit.Mechanism: it ends everything but the rules.
func (f *family) Release() error {
	for id := range f.portals.open {
		f.portals.close(id)
	}
	for c := range f.portals.claims.held {
		f.portals.claims.release(c)
	}
	f.reset()
	return f.tracking.Close()
}
