// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"slices"

	"github.com/viplab/viplab/proxiers/model"
)

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
		slices.SortFunc(gone, model.Compare)
		slices.SortFunc(come, model.Compare)
	}
	if r.of == nil {
		r.of = make(map[*model.Service]F, len(come))
	}
	var swaps []Swap[F]
	for len(gone)+len(come) > 0 {
		var s Swap[F]
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
			s.Was, gone = gone[0], gone[1:]
			s.Old = r.of[s.Was]
			delete(r.of, s.Was)
		}
		if order >= 0 {
			s.Is, come = come[0], come[1:]
			s.New = render(s.Is)
			r.of[s.Is] = s.New
		}
		swaps = append(swaps, s)
	}
	r.State = state
	return swaps
}
