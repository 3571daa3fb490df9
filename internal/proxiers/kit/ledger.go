// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"slices"
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
