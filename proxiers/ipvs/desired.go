// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/proxiers/model"
)

// desired is the state that a family of a node must have. It is computed without reading the kernel.
type desired struct {
	state     *model.State
	at        place
	fragments map[*model.Service]*fragment

	servers kit.Ledger[frontend, *server]
	bound   kit.Ledger[netip.Addr, struct{}]
	members kit.Ledger[member, struct{}]
}

func newDesired() *desired {
	return &desired{
		fragments: map[*model.Service]*fragment{},
		servers:   kit.Ledger[frontend, *server]{}, bound: kit.Ledger[netip.Addr, struct{}]{},
		members: kit.Ledger[member, struct{}]{},
	}
}

// touched holds the things that a change may affect. Some may turn out to be unchanged.
type touched struct {
	servers map[frontend]bool
	bound   map[netip.Addr]bool
	members map[member]bool
}

func newTouched() *touched {
	return &touched{servers: map[frontend]bool{}, bound: map[netip.Addr]bool{}, members: map[member]bool{}}
}

// advance computes the next state. If the node itself has changed, it recomputes all Services.
func (d *desired) advance(state *model.State, at place) *touched {
	gone, come := model.Diff(d.state, state)
	if !at.equal(d.at) {
		if d.state != nil {
			gone = d.state.Services
		}
		come = state.Services
	}
	d.state, d.at = state, at
	t := newTouched()
	for _, s := range gone {
		f := d.fragments[s]
		delete(d.fragments, s)
		forget(d.servers, f.servers, t.servers)
		forget(d.bound, f.bound, t.bound)
		forget(d.members, f.members, t.members)
	}
	for _, s := range come {
		f := at.render(s)
		d.fragments[s] = f
		note(d.servers, f.servers, t.servers)
		note(d.bound, f.bound, t.bound)
		note(d.members, f.members, t.members)
	}
	return t
}

func note[K comparable, V any](l kit.Ledger[K, V], wishes []wish[K, V], t map[K]bool) {
	for _, w := range wishes {
		l.Add(w.key, w.claim)
		t[w.key] = true
	}
}

func forget[K comparable, V any](l kit.Ledger[K, V], wishes []wish[K, V], t map[K]bool) {
	for _, w := range wishes {
		l.Drop(w.key, w.claim)
		t[w.key] = true
	}
}

// everything is what there shall be and what there is.
func (d *desired) everything(have *kernel) *touched {
	t := newTouched()
	for fr := range d.servers {
		t.servers[fr] = true
	}
	for fr := range have.servers.have {
		t.servers[fr] = true
	}
	for a := range d.bound {
		t.bound[a] = true
	}
	maps.Copy(t.bound, have.device.have)
	for m := range d.members {
		t.members[m] = true
	}
	maps.Copy(t.members, have.sets.have)
	return t
}

// String returns "TCP 10.96.0.10:53".
func (fr frontend) String() string {
	name := map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}[fr.proto]
	return fmt.Sprintf("%s %s", name, fr.at)
}
