// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"strings"
)

// ledger says who wants what. Several may want the same thing: ports of a Service share an address, a pod may serve two
// Services. It is there as long as somebody wants it. Where they want it in different ways, as two Services with the
// same external address and port, the first in order of names has its way, so that all nodes decide alike, whatever
// came first.
type ledger[K comparable, V any] map[K][]claim[V]

// claim is somebody's wish: who it is and what for, and how it is to be.
type claim[V any] struct {
	by   string
	want V
}

func (l ledger[K, V]) put(k K, c claim[V]) {
	i, _ := slices.BinarySearchFunc(l[k], c.by, byName[V])
	l[k] = slices.Insert(l[k], i, c)
}

func (l ledger[K, V]) drop(k K, by string) {
	i, found := slices.BinarySearchFunc(l[k], by, byName[V])
	if !found {
		return
	}
	if l[k] = slices.Delete(l[k], i, i+1); len(l[k]) == 0 {
		delete(l, k)
	}
}

// get is the claim that counts.
func (l ledger[K, V]) get(k K) (claim[V], bool) {
	if len(l[k]) == 0 {
		return claim[V]{}, false
	}
	return l[k][0], true
}

// all are those who want something.
func (l ledger[K, V]) all(k K) []string {
	var names []string
	for _, c := range l[k] {
		names = append(names, c.by)
	}
	return names
}

func byName[V any](c claim[V], by string) int { return strings.Compare(c.by, by) }
