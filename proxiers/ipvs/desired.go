// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"iter"
	"maps"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// desired is the state that a family of a node must have. It is computed without reading the kernel.
type desired struct {
	kit.Rendered[*fragment]
	at         place
	translator translator
	// translations are the changes of translations since the last commit.
	translations []kit.Swap[*xtables.Fragment]

	servers claims[frontend, *server]
	bound   claims[netip.Addr, struct{}]
	members claims[member, struct{}]
}

func newDesired(t translator) *desired {
	return &desired{
		translator: t,
		servers:    newClaims[frontend, *server](), bound: newClaims[netip.Addr, struct{}](),
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
	moved := !at.equal(d.at)
	d.at, d.translator.Terse = at, dnat.Crowded(state)
	for _, s := range d.Advance(state, kit.AllIf(moved), d.render) {
		d.translations = append(d.translations, swapOfTranslations(s))
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

// swapOfTranslations returns the change of the translations alone.
func swapOfTranslations(s kit.Swap[*fragment]) kit.Swap[*xtables.Fragment] {
	swap := kit.Swap[*xtables.Fragment]{Was: s.Was, Is: s.Is}
	if s.Old != nil {
		swap.Old = &s.Old.translations
	}
	if s.New != nil {
		swap.New = &s.New.translations
	}
	return swap
}

// allTranslations returns the translations of all Services, in order.
func (d *desired) allTranslations() []*xtables.Fragment {
	var all []*xtables.Fragment
	for _, f := range d.Fragments() {
		all = append(all, &f.translations)
	}
	return all
}

// touchAll touches all entries that must exist or do exist. All translations have been written.
func (d *desired) touchAll(have *kernel) {
	d.translations = nil
	d.servers.touchAll(maps.Keys(have.servers.have))
	d.bound.touchAll(maps.Keys(have.device.have))
	d.members.touchAll(maps.Keys(have.sets.have))
}
