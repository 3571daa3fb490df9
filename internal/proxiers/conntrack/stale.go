// SPDX-License-Identifier: Apache-2.0

// Package conntrack takes stale UDP flows out of a node's connection tracking.
//
// The kernel picks an endpoint for a flow with its first packet and sticks to it as long as packets keep coming. A UDP
// client that never pauses would go on talking to an endpoint that is gone, or to a virtual address that had nobody
// behind it when the first packet came. So after the rules have changed, the flows that the new rules would not have
// made are deleted, and the next packet of each starts anew. TCP needs none of this: its connections end, and the ends
// notice.
package conntrack

import (
	"net/netip"
	"slices"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/proxiers/model"
)

// Wanted says which UDP flows there may be.
type Wanted struct {
	// virtual holds the endpoints behind each virtual address and port, nodePorts those behind each NodePort.
	virtual   map[netip.AddrPort]endpoints
	nodePorts map[uint16]endpoints
	// local are the node's own addresses.
	local map[netip.Addr]bool
}

type endpoints map[netip.AddrPort]bool

// WantedOf makes the answer for a state and a node that has the local addresses, where flows lead to endpoints. A port
// without a serving endpoint is left out, as kube-proxy does: its flows may go on until there is somebody who can take
// over.
func WantedOf(s *model.State, local []netip.Addr) *Wanted {
	w := NewWanted(local)
	for _, svc := range s.Services {
		for _, p := range svc.Ports {
			if len(p.Serving) > 0 {
				w.Add(p, p.Serving)
			}
		}
	}
	return w
}

// NewWanted makes an answer for a node that has the local addresses. It says nothing about any flow yet.
func NewWanted(local []netip.Addr) *Wanted {
	w := &Wanted{virtual: map[netip.AddrPort]endpoints{}, nodePorts: map[uint16]endpoints{}, local: map[netip.Addr]bool{}}
	for _, a := range local {
		w.local[a] = true
	}
	return w
}

// Add says which addresses flows to the frontends of a port may lead to. Ports of other protocols than UDP are left
// out.
func (w *Wanted) Add(p *model.Port, to []netip.AddrPort) {
	if p.ID.Protocol != corev1.ProtocolUDP {
		return
	}
	set := endpoints{}
	for _, e := range to {
		set[e] = true
	}
	for _, at := range virtual(p) {
		w.virtual[at] = set
	}
	if p.NodePort != 0 {
		w.nodePorts[p.NodePort] = set
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

// Of is the part of the answer about the frontends that some Services have, as they are or as they were: when nothing
// else has changed, flows to all others are as right as before. It is nil if there is nothing to say about any of them.
func (w *Wanted) Of(services []*model.Service) *Wanted {
	part := &Wanted{virtual: map[netip.AddrPort]endpoints{}, nodePorts: map[uint16]endpoints{}, local: w.local}
	for _, s := range services {
		for _, p := range s.Ports {
			if p.ID.Protocol != corev1.ProtocolUDP {
				continue
			}
			for _, at := range virtual(p) {
				if set, ours := w.virtual[at]; ours {
					part.virtual[at] = set
				}
			}
			if set, ours := w.nodePorts[p.NodePort]; ours {
				part.nodePorts[p.NodePort] = set
			}
		}
	}
	if part.empty() {
		return nil
	}
	return part
}

// empty says that no flow can be stale.
func (w *Wanted) empty() bool { return w == nil || len(w.virtual) == 0 && len(w.nodePorts) == 0 }

// Stale says whether a flow has to go: it was sent to a frontend of ours, and what answers it (the source of the
// replies) is not one of the endpoints behind that frontend. That takes in flows to endpoints that are gone and flows
// that were never translated. Flows to the same port of some other host are none of our business.
func (w *Wanted) Stale(f *conntrack.Flow) bool {
	if f.TupleOrig.Proto.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to := netip.AddrPortFrom(f.TupleOrig.IP.DestinationAddress.Unmap(), f.TupleOrig.Proto.DestinationPort)
	by := netip.AddrPortFrom(f.TupleReply.IP.SourceAddress.Unmap(), f.TupleReply.Proto.SourcePort)
	set, ours := w.virtual[to]
	if !ours && w.local[to.Addr()] {
		set, ours = w.nodePorts[to.Port()]
	}
	return ours && !set[by]
}

// Concerns says whether any of the Services has a UDP port.
func Concerns(services []*model.Service) bool {
	for _, s := range services {
		for _, p := range s.Ports {
			if p.ID.Protocol == corev1.ProtocolUDP {
				return true
			}
		}
	}
	return false
}
