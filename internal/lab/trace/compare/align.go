// SPDX-License-Identifier: Apache-2.0

// Package compare puts two traces side by side, step by step.
package compare

import (
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/trace"
)

// Pair is a step of each of two traces that stand side by side. The numbers count the steps of all of a trace's walks,
// in the order of Traced.Walks. -1 means that the trace has no such step.
type Pair [2]int

// stop is a step with its number, and with the number of its visit to a place.
type stop struct {
	trace.Step
	number, visit int
}

// kinds are the walks of a trace that can stand beside those of another: the request, the connection of a relay, the
// answer, and ICMP errors.
func kinds(t *trace.Traced) [][]stop {
	number := 0
	var all [][]stop
	for _, w := range append([]*trace.Walk{t.Walk, t.Relayed, t.Reply}, t.Errors...) {
		var stops []stop
		if w != nil {
			for i, s := range w.Steps {
				visit := 0
				if i > 0 {
					visit = stops[i-1].visit
					if s.Place != w.Steps[i-1].Place {
						visit++
					}
				}
				stops = append(stops, stop{s, number, visit})
				number++
			}
		}
		all = append(all, stops)
	}
	return all
}

// Align pairs the steps of two traces: a pair for each step of either, in an order that both keep.
func Align(a, b *trace.Traced) (all []Pair) {
	left, right := kinds(a), kinds(b)
	for i := range max(len(left), len(right)) {
		var l, r []stop
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		all = append(all, align(l, r)...)
	}
	return all
}

// align pairs steps so that the sum of their likenesses is as great as can be (Needleman and Wunsch, 1970).
func align(a, b []stop) []Pair {
	best := make([][]int, len(a)+1) // of the steps from i and from j on
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if l := likeness(a[i], b[j]); l > 0 {
				best[i][j] = max(best[i][j], l+best[i+1][j+1])
			}
		}
	}
	var pairs []Pair
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && likeness(a[i], b[j]) > 0 &&
			best[i][j] == likeness(a[i], b[j])+best[i+1][j+1]:
			pairs = append(pairs, Pair{a[i].number, b[j].number})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && best[i][j] == best[i+1][j]:
			pairs = append(pairs, Pair{a[i].number, -1})
			i++
		default:
			pairs = append(pairs, Pair{-1, b[j].number})
			j++
		}
	}
	return pairs
}

// likeness says how much two steps belong side by side: 0 if they do not.
func likeness(a, b stop) int {
	changed := changes(a.Step)
	switch {
	case a.visit != b.visit:
		return 0
	case a.Device != "" || b.Device != "":
		if a.Direction == b.Direction && kindOf(a.Device) == kindOf(b.Device) {
			return 12
		}
		return 0
	case !slices.Equal(changed, changes(b.Step)):
		return 0
	case a.Hook == b.Hook && a.Kernel == b.Kernel && a.Chain == b.Chain && a.Table == b.Table && a.Rule == b.Rule:
		return 12
	case len(changed) > 0: // a destination is translated at prerouting by rules, and at input by IPVS
		return 8
	case a.Hook == b.Hook && a.Chain == b.Chain && a.Kernel == b.Kernel:
		return 6
	case a.Hook == b.Hook && (a.Kernel == "") == (b.Kernel == ""):
		return 1
	}
	return 0
}

// changes are those of a step without the state, which other kernels do not tell.
func changes(s trace.Step) []string {
	return slices.DeleteFunc(slices.Clone(s.Changed), func(c string) bool { return c == "state" })
}

// kindOf is the name of a device without its number.
func kindOf(device string) string { return strings.TrimRight(device, "0123456789") }
