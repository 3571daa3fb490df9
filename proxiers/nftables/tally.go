// SPDX-License-Identifier: Apache-2.0

package nftables

// tally counts references to things, and tells which things a series of changes added or removed.
type tally[T comparable] struct {
	count   map[T]int
	before  map[T]int // the counts of the touched things at the last call of changes
	touched []T       // in order
}

// change adds n, which may be negative, to the number of references to each thing.
func (t *tally[T]) change(things []T, n int) {
	if t.count == nil {
		t.count = map[T]int{}
	}
	if t.before == nil {
		t.before = map[T]int{}
	}
	for _, x := range things {
		if _, known := t.before[x]; !known {
			t.before[x] = t.count[x]
			t.touched = append(t.touched, x)
		}
		if t.count[x] += n; t.count[x] == 0 {
			delete(t.count, x)
		}
	}
}

// changes returns the things that lost all references since the last call, and those that got their first.
func (t *tally[T]) changes() (gone, come []T) {
	for _, x := range t.touched {
		switch was, is := t.before[x] > 0, t.count[x] > 0; {
		case was && !is:
			gone = append(gone, x)
		case is && !was:
			come = append(come, x)
		}
	}
	t.before, t.touched = nil, nil
	return gone, come
}
