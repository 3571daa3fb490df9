// SPDX-License-Identifier: Apache-2.0

package nftables

// tally counts who needs a thing, and tells what a series of changes came to.
type tally[T comparable] struct {
	count   map[T]int
	before  map[T]int // the counts of what has been touched since the last call of changes
	touched []T       // in order
}

func newTally[T comparable]() *tally[T] { return &tally[T]{count: map[T]int{}, before: map[T]int{}} }

// change adds n, which may be negative, to the number of those who need x.
func (t *tally[T]) change(x T, n int) {
	if _, known := t.before[x]; !known {
		t.before[x] = t.count[x]
		t.touched = append(t.touched, x)
	}
	if t.count[x] += n; t.count[x] == 0 {
		delete(t.count, x)
	}
}

// changes are the things that nobody needs any more, and those that somebody needs now, since the last call.
func (t *tally[T]) changes() (gone, come []T) {
	for _, x := range t.touched {
		switch was, is := t.before[x] > 0, t.count[x] > 0; {
		case was && !is:
			gone = append(gone, x)
		case is && !was:
			come = append(come, x)
		}
	}
	t.before, t.touched = map[T]int{}, nil
	return gone, come
}
