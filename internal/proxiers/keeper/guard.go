// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"

	"github.com/viplab/viplab/proxiers/model"
)

// guard has a mechanism serve all Services but those that cannot be served: one of them does not block the others.
type guard struct {
	mechanism Mechanism
	// refuse is told of each Service that is left out, once.
	refuse func(*model.Service, error)

	// served is what the mechanism has taken last.
	served *model.State
	// refused are the Services left out. One that changes is tried again, as another *model.Service.
	refused map[*model.Service]bool
	// whole is the last state, and admitted what it is without those.
	whole, admitted *model.State
}

// mostRefused is how many Services may be left out at a time. If there are more, it is not they that are wrong.
const mostRefused = 16

// program makes the mechanism obey the state. What fails is tried once more, as then everything is written, whatever
// the kernel held; if that fails, too, the Services that are to blame are found and left out.
func (g *guard) program(ctx context.Context, state *model.State, at Place) error {
	want := g.admit(state)
	err := g.try(ctx, want, at)
	if err != nil && ctx.Err() == nil {
		err = g.try(ctx, want, at)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	found := g.search(ctx, want, at)
	if len(found) == 0 {
		return err
	}
	for s, why := range found {
		g.refused[s] = true
		g.refuse(s, why)
	}
	g.whole, g.admitted = state, g.served
	return nil
}

// try has the mechanism serve a state.
func (g *guard) try(ctx context.Context, state *model.State, at Place) error {
	err := g.mechanism.Program(ctx, state, at)
	if err == nil {
		g.served = state
	}
	return err
}

// admit is a state without the Services that were refused. It is the same for the same state.
func (g *guard) admit(state *model.State) *model.State {
	if state == g.whole {
		return g.admitted
	}
	still := map[*model.Service]bool{}
	admitted := only(state, func(s *model.Service) bool {
		if g.refused[s] {
			still[s] = true
		}
		return !g.refused[s]
	})
	if len(still) == 0 {
		admitted = state
	}
	g.refused, g.whole, g.admitted = still, state, admitted
	return admitted
}

// search finds the Services that the mechanism does not take among those that it was not serving before: by halves,
// each beside all those that are known to be good. In the end it serves all others. None are found if it serves not
// even those that it did before, or if too many are at fault.
func (g *guard) search(ctx context.Context, state *model.State, at Place) map[*model.Service]error {
	_, suspects := model.Diff(g.served, state)
	out := map[*model.Service]bool{}
	leave := func(group []*model.Service, away bool) {
		for _, s := range group {
			out[s] = away
		}
	}
	rest := func() error {
		return g.try(ctx, only(state, func(s *model.Service) bool { return !out[s] }), at)
	}
	leave(suspects, true)
	if len(suspects) == 0 || rest() != nil {
		return nil
	}
	found := map[*model.Service]error{}
	for groups := [][]*model.Service{suspects}; len(groups) > 0; groups = groups[1:] {
		group := groups[0]
		leave(group, false)
		err := rest()
		if err == nil {
			continue
		}
		leave(group, true)
		if half := len(group) / 2; half > 0 {
			groups = append(groups, group[:half], group[half:])
		} else if found[group[0]] = err; len(found) > mostRefused {
			return nil
		}
	}
	if rest() != nil { // the last one tried may have failed
		return nil
	}
	return found
}

// only is a state with some of the Services.
func only(state *model.State, which func(*model.Service) bool) *model.State {
	out := &model.State{}
	for _, s := range state.Services {
		if which(s) {
			out.Services = append(out.Services, s)
		}
	}
	return out
}
