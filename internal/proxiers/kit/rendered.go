// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"iter"

	"github.com/viplab/viplab/proxiers/model"
)

// Rendered holds the fragment of each Service of a state: what the kernel needs for it. The zero value is that of no
// state.
type Rendered[F any] struct {
	State *model.State
	of    map[*model.Service]F
}

// Swap is the change of one Service's fragment. Old is nil for a new Service, New for a deleted one.
type Swap[F any] struct{ Old, New F }

// Fragments returns the fragments of all Services, in order.
func (r *Rendered[F]) Fragments() []F {
	all := make([]F, 0, len(r.State.Services))
	for _, s := range r.State.Services {
		all = append(all, r.of[s])
	}
	return all
}

// Advance goes on to another state. It renders the Services that changed, or all of them.
func (r *Rendered[F]) Advance(state *model.State, all bool, render func(*model.Service) F) []Swap[F] {
	gone, come := model.Diff(r.State, state)
	if all && r.State != nil {
		gone, come = r.State.Services, state.Services
	}
	if r.of == nil {
		r.of = make(map[*model.Service]F, len(come))
	}
	var swaps []Swap[F]
	for was, is := range Pairs(gone, come) {
		var s Swap[F]
		if was != nil {
			s.Old = r.of[was]
			delete(r.of, was)
		}
		if is != nil {
			s.New = render(is)
			r.of[is] = s.New
		}
		swaps = append(swaps, s)
	}
	r.State = state
	return swaps
}

// Pairs pairs the Services of two sorted lists by name. One that only one list has is paired with nil.
func Pairs(gone, come []*model.Service) iter.Seq2[*model.Service, *model.Service] {
	return func(yield func(was, is *model.Service) bool) {
		for len(gone)+len(come) > 0 {
			var was, is *model.Service
			order := 0
			switch {
			case len(gone) == 0:
				order = +1
			case len(come) == 0:
				order = -1
			default:
				order = model.Compare(gone[0], come[0])
			}
			if order <= 0 {
				was, gone = gone[0], gone[1:]
			}
			if order >= 0 {
				is, come = come[0], come[1:]
			}
			if !yield(was, is) {
				return
			}
		}
	}
}
