// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"slices"

	"github.com/viplab/viplab/proxiers/model"
)

// Ledger holds the claims to keys: ports of a Service share an address, and a pod may serve two Services. If claims
// differ, as those of two Services with the same external address and port, the first in order wins, so that all nodes
// decide alike, whichever claim they saw first.
type Ledger[K comparable, V any] map[K][]Claim[V]

// Claim is a claim to a key, with the value that it wants.
type Claim[V any] struct {
	Rank int    // orders claims, lower ones first
	By   string // the claimant; orders claims of the same rank
	Want V
}

// Add adds a claim.
func (l Ledger[K, V]) Add(k K, c Claim[V]) {
	i, _ := slices.BinarySearchFunc(l[k], c, compareClaims)
	l[k] = slices.Insert(l[k], i, c)
}

// Drop removes a claim of the same rank and claimant.
func (l Ledger[K, V]) Drop(k K, c Claim[V]) {
	if i, found := slices.BinarySearchFunc(l[k], c, compareClaims); found {
		l[k] = slices.Delete(l[k], i, i+1)
	}
	if len(l[k]) == 0 {
		delete(l, k)
	}
}

// Get returns the value of a key. It reports false if the key has no claim.
func (l Ledger[K, V]) Get(k K) (v V, ok bool) {
	if len(l[k]) == 0 {
		return v, false
	}
	return l[k][0].Want, true
}

// Claimants returns the claimants of a key.
func (l Ledger[K, V]) Claimants(k K) []string {
	var names []string
	for _, c := range l[k] {
		names = append(names, c.By)
	}
	return names
}

func compareClaims[V any](a, b Claim[V]) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.By, b.By))
}

// Rendered holds the fragment of each Service of a state: what the kernel needs for it. The zero value is that of no
// state.
type Rendered[F any] struct {
	State *model.State
	of    map[*model.Service]F
}

// Swap is the change of one Service, nil if it is new or deleted, and of its fragment.
type Swap[F any] struct {
	Was, Is  *model.Service
	Old, New F
}

// Fragments returns the fragments of all Services, in order.
func (r *Rendered[F]) Fragments() []F {
	all := make([]F, 0, len(r.State.Services))
	for _, s := range r.State.Services {
		all = append(all, r.of[s])
	}
	return all
}

// AllIf returns the argument again of Advance that renders all Services if the condition is met, and none otherwise.
func AllIf(condition bool) func(*model.Service) bool {
	if !condition {
		return nil
	}
	return func(*model.Service) bool { return true }
}

// Advance goes on to another state. It renders the Services that changed, and unchanged ones for which again, if not
// nil, returns true.
func (r *Rendered[F]) Advance(state *model.State, again func(*model.Service) bool,
	render func(*model.Service) F) []Swap[F] {
	gone, come := model.Diff(r.State, state)
	if again != nil && r.State != nil {
		for _, s := range state.Services {
			if _, unchanged := r.of[s]; unchanged && again(s) {
				gone, come = append(gone, s), append(come, s)
			}
		}
	}
	if r.of == nil {
		r.of = make(map[*model.Service]F, len(come))
	}
	type name struct{ namespace, name string }
	var swaps []Swap[F]
	index := map[name]int{}
	for _, s := range gone {
		index[name{s.Namespace, s.Name}] = len(swaps)
		swaps = append(swaps, Swap[F]{Was: s, Old: r.of[s]})
		delete(r.of, s)
	}
	for _, s := range come {
		r.of[s] = render(s)
		if i, changed := index[name{s.Namespace, s.Name}]; changed {
			swaps[i].Is, swaps[i].New = s, r.of[s]
		} else {
			swaps = append(swaps, Swap[F]{Is: s, New: r.of[s]})
		}
	}
	r.State = state
	return swaps
}
