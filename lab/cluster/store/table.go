// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
)

// table holds the objects of one kind. A list is never changed once handed out. A new one is merged from the last one
// and the keys that changed since, so that a change among ten thousand objects needs no sort.
type table[T Object] struct {
	objects map[Key]T
	listed  []T
	stale   keyset // changed since listed was made
}

// anyTable is a table of any type.
type anyTable interface {
	get(Key) (Object, bool)
	set(Key, Object) // a nil Object takes the key out
	inNamespace(string) []Key
	objectsInOrder() []Object
}

func newTable[T Object]() *table[T] {
	return &table[T]{objects: map[Key]T{}, stale: keyset{}}
}

func (t *table[T]) get(k Key) (Object, bool) {
	o, ok := t.objects[k]
	if !ok {
		return nil, false
	}
	return o, true
}

func (t *table[T]) set(k Key, o Object) {
	t.stale[k] = struct{}{}
	if o == nil {
		delete(t.objects, k)
		return
	}
	t.objects[k] = o.(T)
}

// list returns every object, sorted by namespace, then name.
func (t *table[T]) list() []T {
	if len(t.stale) == 0 {
		return t.listed
	}
	merged := make([]T, 0, len(t.objects))
	rest := t.listed
	for _, k := range sorted(t.stale) {
		at, was := slices.BinarySearchFunc(rest, k, func(o T, k Key) int { return compareKeys(KeyOf(o), k) })
		merged = append(merged, rest[:at]...)
		rest = rest[at:]
		if was {
			rest = rest[1:]
		}
		if o, is := t.objects[k]; is {
			merged = append(merged, o)
		}
	}
	t.listed = append(merged, rest...)
	clear(t.stale)
	return t.listed
}

func (t *table[T]) objectsInOrder() []Object { return asObjects(t.list()) }

// inNamespace lists the keys of a namespace in order.
func (t *table[T]) inNamespace(namespace string) []Key {
	var out []Key
	for k := range t.objects {
		if k.Namespace == namespace {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, compareKeys)
	return out
}
