// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"iter"
	"maps"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/proxiers/model"
)

// desired is the state that a family of a node must have. It is computed without reading the kernel.
type desired struct {
	kit.Rendered[*fragment]
	at place

	servers claims[frontend, *server]
	bound   claims[netip.Addr, struct{}]
	members claims[member, struct{}]
}

func newDesired() *desired {
	return &desired{
		servers: newClaims[frontend, *server](), bound: newClaims[netip.Addr, struct{}](),
		members: newClaims[member, struct{}](),
	}
}

// claims are those of all Services for one kind of entry.
type claims[K comparable, V any] struct {
	kit.Ledger[K, V]
	// touched are the entries that may have changed since the last commit.
	touched map[K]bool
}

func newClaims[K comparable, V any]() claims[K, V] {
	return claims[K, V]{kit.Ledger[K, V]{}, map[K]bool{}}
}

// change adds or drops claims.
func (c *claims[K, V]) change(all []claim[K, V], do func(K, kit.Claim[V])) {
	for _, one := range all {
		do(one.key, one.claim)
		c.touched[one.key] = true
	}
}

// touchAll touches all claims and all existing entries.
func (c *claims[K, V]) touchAll(have iter.Seq[K]) {
	for _, keys := range []iter.Seq[K]{maps.Keys(c.Ledger), have} {
		for k := range keys {
			c.touched[k] = true
		}
	}
}

// advance computes the next state. If the node itself has changed, it recomputes all Services.
func (d *desired) advance(state *model.State, at place) {
	swaps := d.Advance(state, kit.AllIf(!at.equal(d.at)), at.render)
	d.at = at
	for _, s := range swaps {
		if f := s.Old; f != nil {
			d.servers.change(f.servers, d.servers.Drop)
			d.bound.change(f.bound, d.bound.Drop)
			d.members.change(f.members, d.members.Drop)
		}
		if f := s.New; f != nil {
			d.servers.change(f.servers, d.servers.Add)
			d.bound.change(f.bound, d.bound.Add)
			d.members.change(f.members, d.members.Add)
		}
	}
}

// touchAll touches all entries that must exist or do exist.
func (d *desired) touchAll(have *kernel) {
	d.servers.touchAll(maps.Keys(have.servers.have))
	d.bound.touchAll(maps.Keys(have.device.have))
	d.members.touchAll(maps.Keys(have.sets.have))
}
