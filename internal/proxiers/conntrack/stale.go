// SPDX-License-Identifier: Apache-2.0

// Package conntrack deletes stale UDP flows from a node's connection tracking.
//
// The kernel picks an endpoint with the first packet of a flow and keeps it as long as packets come. Without this
// package, a UDP client that never pauses would keep sending to a removed endpoint, or to a virtual address that was
// not served when it began. A deleted flow starts anew with its next packet. TCP needs none of this, because both ends
// notice when a connection ends.
package conntrack

import (
	"net/netip"
	"slices"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// Wanted describes which UDP flows may stay.
type Wanted struct {
	// virtual holds the destinations of each virtual address and port, nodePorts those of each NodePort.
	virtual   map[netip.AddrPort]destinations
	nodePorts map[uint16]destinations
	// local are the node's own addresses.
	local sets.Set[netip.Addr]
	// Relays is the address of processes that relay flows, invalid if there are none. Flows that lead there from other
	// frontends than those that were added are stale.
	Relays netip.Addr
	// Inherited is set to the IP family if a former proxier may have left flows: those that were translated for other
	// frontends than those that were added are stale. The zero value means that there are no such flows.
	Inherited lab.Family
}

// destinations are the valid destinations of flows to a frontend.
type destinations struct {
	addrs sets.Set[netip.AddrPort]
	// gone is set for a deleted frontend: flows to these destinations are stale, and all others are not ours.
	gone bool
}

// WantedOf returns the wanted flows of a state on a node with the local addresses, where flows lead to endpoints. A
// port without a serving endpoint wants no flow at all.
func WantedOf(s *model.State, local []netip.Addr) *Wanted {
	w := NewWanted(local)
	for _, svc := range s.Services {
		for _, p := range svc.Ports {
			w.Add(p, p.Serving)
		}
	}
	return w
}

// NewWanted returns a description without frontends, for a node with the local addresses.
func NewWanted(local []netip.Addr) *Wanted { return blank(sets.New(local...)) }

func blank(local sets.Set[netip.Addr]) *Wanted {
	return &Wanted{virtual: map[netip.AddrPort]destinations{}, nodePorts: map[uint16]destinations{}, local: local}
}

// Add adds a UDP port with the destinations of flows to its frontends. It ignores ports of other protocols.
func (w *Wanted) Add(p *model.Port, to []netip.AddrPort) { w.add(p, to, false) }

func (w *Wanted) add(p *model.Port, to []netip.AddrPort, gone bool) {
	if p.ID.Protocol != corev1.ProtocolUDP {
		return
	}
	d := destinations{addrs: sets.New(to...), gone: gone}
	for _, at := range virtual(p) {
		if _, known := w.virtual[at]; !known || !gone {
			w.virtual[at] = d
		}
	}
	if _, known := w.nodePorts[p.NodePort]; p.NodePort != 0 && (!known || !gone) {
		w.nodePorts[p.NodePort] = d
	}
}

// virtual returns the virtual addresses of a port.
func virtual(p *model.Port) []netip.AddrPort {
	all := []netip.AddrPort{netip.AddrPortFrom(p.ClusterIP, p.Number)}
	for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
		all = append(all, netip.AddrPortFrom(ip, p.Number))
	}
	return all
}

// After returns the part about changed Services, given as they were and as they are. Flows to a deleted frontend are
// stale if they lead to one of its former endpoints. It returns nil if no flow can be stale.
func (w *Wanted) After(were, are []*model.Service) *Wanted {
	part := blank(w.local)
	each(slices.Concat(were, are), func(p *model.Port) {
		for _, at := range virtual(p) {
			if d, served := w.virtual[at]; served {
				part.virtual[at] = d
			}
		}
		if d, served := w.nodePorts[p.NodePort]; served {
			part.nodePorts[p.NodePort] = d
		}
	})
	each(were, func(p *model.Port) { part.add(p, p.Serving, true) })
	if part.empty() {
		return nil
	}
	return part
}

// each calls do for every UDP port.
func each(services []*model.Service, do func(*model.Port)) {
	for _, s := range services {
		if s == nil {
			continue
		}
		for _, p := range s.Ports {
			if p.ID.Protocol == corev1.ProtocolUDP {
				do(p)
			}
		}
	}
}

// empty reports whether no flow can be stale.
func (w *Wanted) empty() bool {
	return w == nil || w.Inherited == 0 && !w.hasFrontends()
}

// hasFrontends reports whether flows to frontends or to relays can be stale.
func (w *Wanted) hasFrontends() bool {
	return len(w.virtual) > 0 || len(w.nodePorts) > 0 || w.Relays.IsValid()
}

// Orphan reports whether a flow was translated for a frontend that is not served. It may also be a flow that another
// program translates, such as one to a host port: that starts anew under the same rules.
func (w *Wanted) Orphan(f *conntrack.Flow) bool {
	to, by := ends(f)
	_, ours := w.frontend(to)
	return !ours && to != by && f.TupleOrig.Proto.Protocol == unix.IPPROTO_UDP &&
		w.Inherited == lab.FamilyOf(to.Addr())
}

// Stale reports whether a flow was sent to a frontend of ours, and the source of its replies is not one of the
// endpoints behind that frontend. This includes flows to removed endpoints, and flows that were never translated.
func (w *Wanted) Stale(f *conntrack.Flow) bool {
	if f.TupleOrig.Proto.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, by := ends(f)
	d, ours := w.frontend(to)
	if !ours {
		return w.Relays.IsValid() && by.Addr() == w.Relays
	}
	return d.addrs.Has(by) == d.gone
}

// ends returns where a flow was sent to, and who answers it.
func ends(f *conntrack.Flow) (to, by netip.AddrPort) {
	return sentTo(&f.TupleOrig),
		netip.AddrPortFrom(f.TupleReply.IP.SourceAddress.Unmap(), f.TupleReply.Proto.SourcePort)
}

// frontend returns the valid destinations of flows to a frontend, and whether it is one.
func (w *Wanted) frontend(at netip.AddrPort) (d destinations, ours bool) {
	if d, ours = w.virtual[at]; !ours && w.local.Has(at.Addr()) {
		d, ours = w.nodePorts[at.Port()]
	}
	return d, ours
}

// frontends yields the addresses of all frontends. Flows to others can be stale only with Relays or Inherited.
func (w *Wanted) frontends(yield func(netip.AddrPort) bool) {
	for at := range w.virtual {
		if !yield(at) {
			return
		}
	}
	for port := range w.nodePorts {
		for addr := range w.local {
			if !yield(netip.AddrPortFrom(addr, port)) {
				return
			}
		}
	}
}

// Concerns reports whether any of the Services has a UDP port. It ignores nil.
func Concerns(services ...*model.Service) (found bool) {
	each(services, func(*model.Port) { found = true })
	return found
}
