// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"
)

// errors returns the ways of the ICMP errors about a request, the first of each kind, in the order in which devices
// have seen them.
func (t *Tracer) errors(k key, sender string) (walks []*Walk) {
	var all []sighting
	for _, p := range t.spots {
		for _, f := range p.frames() {
			if inner := f.Innermost(); inner.Quoted != nil && k.quoted(inner.Quoted) {
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sighting) int { return a.At.Compare(b.At) })
	seen := map[[2]byte]bool{}
	for _, f := range all {
		about := k.about(f.Innermost())
		if !seen[about.kind] {
			seen[about.kind] = true
			walks = append(walks, t.walk(about, sender))
		}
	}
	return walks
}
