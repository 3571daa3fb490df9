// SPDX-License-Identifier: Apache-2.0

package kit

import "github.com/viplab/viplab/proxiers/model"

// Rendered holds the fragment of each Service of a state: what the kernel needs for it. The zero value is that of no
// state.
type Rendered[F any] struct {
	State *model.State
	of    map[*model.Service]F
}

// Of returns the fragment of a Service.
func (r *Rendered[F]) Of(s *model.Service) F { return r.of[s] }

// Advance goes on to another state. It renders the Services that changed, or all of them, and returns the fragments that
// go and those that come.
func (r *Rendered[F]) Advance(state *model.State, all bool, render func(*model.Service) F) (gone, come []F) {
	lost, won := model.Diff(r.State, state)
	if all && r.State != nil {
		lost, won = r.State.Services, state.Services
	}
	if r.of == nil {
		r.of = make(map[*model.Service]F, len(won))
	}
	for _, s := range lost {
		gone = append(gone, r.of[s])
		delete(r.of, s)
	}
	for _, s := range won {
		r.of[s] = render(s)
		come = append(come, r.of[s])
	}
	r.State = state
	return gone, come
}
