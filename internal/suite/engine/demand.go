// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
)

// demand is the revisions of the cluster's state that its scenarios wait for. The zero value has no scenarios.
type demand struct {
	mu        sync.Mutex
	scenarios int
	awaited   []uint64
	changed   chan struct{} // closed when the other fields change; nil if no caller waits for that
}

// join counts a scenario until it calls leave.
func (d *demand) join() (leave func()) {
	d.change(func() { d.scenarios++ })
	return func() { d.change(func() { d.scenarios-- }) }
}

// await records that a scenario waits for a revision until it calls done.
func (d *demand) await(revision uint64) (done func()) {
	d.change(func() { d.awaited = append(d.awaited, revision) })
	return func() {
		d.change(func() {
			i := slices.Index(d.awaited, revision)
			d.awaited = slices.Delete(d.awaited, i, i+1)
		})
	}
}

func (d *demand) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// exceeds reports whether at least half of the scenarios wait for a newer revision than the given one. The channel is
// closed when that may have changed.
func (d *demand) exceeds(revision uint64) (bool, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	newer := 0
	for _, r := range d.awaited {
		if r > revision {
			newer++
		}
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return newer > 0 && 2*newer >= d.scenarios, d.changed
}
