// SPDX-License-Identifier: Apache-2.0

// Package conntrack takes stale UDP flows out of a node's connection tracking.
//
// The kernel picks an endpoint for a flow with its first packet and keeps it as long as packets come. A UDP client that
// never pauses would go on talking to an endpoint that is gone, or to a virtual address that was not served when the
// first packet came. So after the rules have changed, the flows that the new rules would not have made are deleted, and
// the next packet of each starts anew. TCP needs none of this: its connections end, and both ends notice.
package conntrack

import (
	"net/netip"
	"slices"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/proxiers/model"
)

// Wanted describes which UDP flows may stay.
type Wanted struct {
	// virtual holds the destinations of each virtual address and port, nodePorts those of each NodePort.
	virtual   map[netip.AddrPort]destinations
	nodePorts map[uint16]destinations
	// local are the node's own addresses.
	local map[netip.Addr]bool
	// Relays is the address of processes that relay flows. Flows that lead there from other frontends than those that
	// were added are stale. The zero value stands for no such address.
	Relays netip.Addr
}

// destinations are where flows to a frontend lead to.
type destinations struct {
	addrs map[netip.AddrPort]bool
	// gone is set for a frontend that no Service has any more: flows to these destinations are stale, and all others
	// are not ours.
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

// NewWanted returns a description for a node with the local addresses. By it, no flow is stale yet.
func NewWanted(local []netip.Addr) *Wanted {
	w := (&Wanted{local: map[netip.Addr]bool{}}).blank()
	for _, a := range local {
		w.local[a] = true
	}
	return w
}

// blank returns a description for the same node, by which no flow is stale.
func (w *Wanted) blank() *Wanted {
	return &Wanted{virtual: map[netip.AddrPort]destinations{}, nodePorts: map[uint16]destinations{}, local: w.local}
}

// Add adds a UDP port, and the addresses that flows to its frontends may lead to. It ignores ports of other protocols.
func (w *Wanted) Add(p *model.Port, to []netip.AddrPort) { w.add(p, to, false) }

func (w *Wanted) add(p *model.Port, to []netip.AddrPort, gone bool) {
	if p.ID.Protocol != corev1.ProtocolUDP {
		return
	}
	d := destinations{addrs: map[netip.AddrPort]bool{}, gone: gone}
	for _, e := range to {
		d.addrs[e] = true
	}
	for _, at := range virtual(p) {
		if _, known := w.virtual[at]; !known || !gone {
			w.virtual[at] = d
		}
	}
	if _, known := w.nodePorts[p.NodePort]; p.NodePort != 0 && (!known || !gone) {
		w.nodePorts[p.NodePort] = d
	}
}

// virtual are the addresses of a port that no machine has.
func virtual(p *model.Port) []netip.AddrPort {
	all := []netip.AddrPort{netip.AddrPortFrom(p.ClusterIP, p.Number)}
	for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
		all = append(all, netip.AddrPortFrom(ip, p.Number))
	}
	return all
}

// After returns the part that concerns changed Services, given as they were and as they are: flows to all others are as
// right as before. Flows to a frontend that none has any more are stale if they lead to an endpoint that it had. It
// returns nil if no flow can be stale.
func (w *Wanted) After(were, are []*model.Service) *Wanted {
	part := w.blank()
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
		for _, p := range s.Ports {
			if p.ID.Protocol == corev1.ProtocolUDP {
				do(p)
			}
		}
	}
}

// empty reports whether no flow can be stale.
func (w *Wanted) empty() bool {
	return w == nil || len(w.virtual) == 0 && len(w.nodePorts) == 0 && !w.Relays.IsValid()
}

// Stale reports whether a flow has to go: it was sent to a frontend of ours, and the source of its replies is not one
// of the endpoints behind that frontend. This includes flows to endpoints that are gone, and flows that were never
// translated. Flows to the same port of another host are not ours.
func (w *Wanted) Stale(f *conntrack.Flow) bool {
	if f.TupleOrig.Proto.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to := netip.AddrPortFrom(f.TupleOrig.IP.DestinationAddress.Unmap(), f.TupleOrig.Proto.DestinationPort)
	by := netip.AddrPortFrom(f.TupleReply.IP.SourceAddress.Unmap(), f.TupleReply.Proto.SourcePort)
	d, ours := w.virtual[to]
	if !ours && w.local[to.Addr()] {
		d, ours = w.nodePorts[to.Port()]
	}
	if !ours {
		return w.Relays.IsValid() && by.Addr() == w.Relays
	}
	return d.addrs[by] == d.gone
}

// Concerns reports whether any of the Services has a UDP port.
func Concerns(services []*model.Service) (found bool) {
	each(services, func(*model.Port) { found = true })
	return found
}
