// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
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

	// known is set if the kernel holds the rules of all fragments.
	known bool
	kit.Rendered[*xtables.Fragment]
	// nodePorts are the addresses that the fragments and portals were made for.
	nodePorts []netip.Addr
	// incomplete are the Services with a relay or NodePort that could not be opened.
	incomplete map[*model.Service]bool
	// stale is set while conntrack may hold UDP flows to closed relays.
	stale bool

	sabotage spec.Sabotage
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
			sockets: newSockets(node.Host.NS, ip), at: relayAddrs[ip], log: node.Log.With("node", node.Name),
			events: node.Events,
		},
		sabotage: node.Sabotage,
	}
	f.reset()
	return f, nil
}

// reset returns the family to the state before the first Program.
func (f *family) reset() {
	f.known, f.Rendered, f.nodePorts = false, kit.Rendered[*xtables.Fragment]{}, nil
	f.incomplete = map[*model.Service]bool{}
	f.portals.open, f.portals.named = map[model.PortID]*portal{}, map[servicePort]model.PortID{}
	f.portals.claims = newClaims(f.portals.sockets)
}

// Program implements kit.Mechanism. It opens sockets before it writes the rules that lead to them, and closes them
// after it has deleted these rules. It tries incomplete Services again.
func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) (err error) {
	known := f.known
	var held xtables.Tables
	if !known {
		if held, err = f.begin(ctx); err != nil {
			return err
		}
	}
	everything := !known || !slices.Equal(f.nodePorts, at.NodePorts) || (f.nodePorts == nil) != (at.NodePorts == nil)
	again := kit.AllIf(everything)
	if !everything && len(f.incomplete) > 0 {
		again = func(s *model.Service) bool { return f.incomplete[s] }
	}
	var failed error // the first error; others are likely to have the same cause
	f.nodePorts = at.NodePorts
	swaps := f.Advance(state, again, func(s *model.Service) *xtables.Fragment {
		fragment, err := f.prepare(ctx, s)
		failed = cmp.Or(failed, err)
		return fragment
	})
	for _, s := range swaps {
		if s.Was != s.Is {
			delete(f.incomplete, s.Was)
		}
	}
	if known && len(swaps) == 0 && !f.stale {
		return nil
	}
	step := f.layout.Delta(swaps)
	if !known {
		step = f.layout.Rebuild(f.Fragments(), held, entries)
	}
	f.known = false // until the kernel has accepted the change
	if err := f.programs.Restore(ctx, step.Transactions(xtables.NFTables)...); err != nil {
		return errors.Join(err, failed)
	}
	f.known = true
	f.settle(swaps, everything)
	f.stale = f.stale || !known || slices.ContainsFunc(swaps, func(s kit.Swap[*xtables.Fragment]) bool {
		return conntrack.Concerns(s.Was) || conntrack.Concerns(s.Is)
	})
	return errors.Join(failed, f.forget(ctx, at.Local))
}

// keepStale reports whether stale flows are to stay, as a sabotage.
func (f *family) keepStale() bool {
	return f.sabotage.KeepStaleFlows != nil && f.sabotage.KeepStaleFlows()
}

// forget deletes UDP flows that lead to no relay from connection tracking.
func (f *family) forget(ctx context.Context, local []netip.Addr) error {
	if !f.stale || f.keepStale() {
		return nil
	}
	err := f.tracking.Clean(ctx, f.wanted(local))
	f.stale = err != nil
	return err
}

// begin reads the rules in the kernel, and adds the address of the relays.
func (f *family) begin(ctx context.Context) (xtables.Tables, error) {
	held, err := f.programs.Save(ctx)
	if err != nil {
		return nil, err
	}
	f.portals.former = formerPorts(held.Of(xtables.NAT), f.portals.at)
	return held, addAddress(ctx, f.ns, f.portals.at)
}

// prepare opens the sockets of a Service and renders its rules. It leaves out what cannot be opened.
func (f *family) prepare(ctx context.Context, s *model.Service) (fragment *xtables.Fragment, failed error) {
	fragment = &xtables.Fragment{}
	delete(f.incomplete, s)
	f.portals.rename(s)
	for _, p := range s.Ports {
		if !relayed(p.ID.Protocol) {
			continue
		}
		w, held, err := f.portals.prepare(ctx, p, f.nodePorts)
		f.renderer.port(fragment, p, w, held)
		if !f.portals.complete(p.ID) {
			f.incomplete[s] = true
		}
		failed = cmp.Or(failed, err)
	}
	return fragment, failed
}

// settle closes the sockets that rules no longer lead to, of the changed Services or of all.
func (f *family) settle(swaps []kit.Swap[*xtables.Fragment], everything bool) {
	ports, claimed := map[model.PortID]bool{}, map[claim]bool{}
	for _, swap := range swaps {
		for _, p := range portsOf(swap.Is) {
			for _, c := range claimsOf(p, f.nodePorts, f.ip) {
				claimed[c] = true
			}
			if relayed(p.ID.Protocol) {
				ports[p.ID] = true
				if !f.keepStale() {
					f.portals.settle(p)
				}
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
	for _, swap := range swaps {
		for _, p := range portsOf(swap.Was) {
			leavePort(p.ID)
			for _, c := range claimsOf(p, f.nodePorts, f.ip) {
				leaveClaim(c)
			}
		}
	}
}

func portsOf(s *model.Service) []*model.Port {
	if s == nil {
		return nil
	}
	return s.Ports
}

// wanted returns a predicate of the UDP flows to keep: those from frontends to their relays.
func (f *family) wanted(local []netip.Addr) *conntrack.Wanted {
	w := conntrack.NewWanted(local)
	w.Relays = f.portals.at
	for _, s := range f.State.Services {
		for _, p := range s.Ports {
			to := f.portals.openAddrs(p.ID)
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

func (f *family) Remove(ctx context.Context) error {
	err := owned.Remove(ctx, f.programs)
	return errors.Join(err, f.Release(), removeAddress(f.ns, f.portals.at))
}

// Release implements kit.Mechanism: it ends everything except the rules.
func (f *family) Release() error {
	for id := range f.portals.open {
		f.portals.close(id)
	}
	for c := range f.portals.claims.held {
		f.portals.claims.release(c)
	}
	f.reset()
	f.programs.Close()
	return errors.Join(f.tracking.Close(), f.portals.sockets.flows.Close())
}
