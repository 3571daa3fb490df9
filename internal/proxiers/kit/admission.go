// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"slices"

	"github.com/viplab/viplab/proxiers/model"
)

// admission programs all Services except those that the mechanism refuses, so that one of them does not block the
// others.
type admission struct {
	mechanism Mechanism
	// refuse is called once for each Service that is left out.
	refuse func(*model.Service, error)

	// served is the last state that the mechanism accepted.
	served *model.State
	// refused are the Services that are left out. One that changes is tried again, as another *model.Service.
	refused map[*model.Service]bool
	// whole is the last state, and admitted is that state without the refused Services.
	whole, admitted *model.State
}

// mostRefused is how many Services may be left out at a time. If more fail, the fault is not theirs.
const mostRefused = 16

// program programs the state. After a failure it tries once more, because the mechanism then rewrites everything. If
// that fails as well, it searches for the Services that cause the failure and leaves them out.
func (a *admission) program(ctx context.Context, state *model.State, at Place) error {
	want := a.admit(state)
	err := a.try(ctx, want, at)
	if err != nil && ctx.Err() == nil {
		err = a.try(ctx, want, at)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	found := a.search(ctx, want, at)
	if len(found) == 0 {
		return err
	}
	for s, why := range found {
		a.refused[s] = true
		a.refuse(s, why)
	}
	a.whole, a.admitted = state, a.served
	return nil
}

// try programs a state.
func (a *admission) try(ctx context.Context, state *model.State, at Place) error {
	err := a.mechanism.Program(ctx, state, at)
	if err == nil {
		a.served = state
	}
	return err
}

// admit returns the state without the refused Services. It returns the same result for the same state.
func (a *admission) admit(state *model.State) *model.State {
	if state == a.whole {
		return a.admitted
	}
	still := map[*model.Service]bool{}
	admitted := without(state, func(s *model.Service) bool {
		if a.refused[s] {
			still[s] = true
		}
		return a.refused[s]
	})
	if len(still) == 0 {
		admitted = state
	}
	a.refused, a.whole, a.admitted = still, state, admitted
	return admitted
}

// search bisects the Services that were not served before for those that the mechanism refuses, and programs all
// others. It returns nil if the mechanism refuses even what it served before, or if more than mostRefused Services
// fail.
func (a *admission) search(ctx context.Context, state *model.State, at Place) map[*model.Service]error {
	_, suspects := model.Diff(a.served, state)
	out := map[*model.Service]bool{}
	leave := func(group []*model.Service, away bool) {
		for _, s := range group {
			out[s] = away
		}
	}
	rest := func() error {
		return a.try(ctx, without(state, func(s *model.Service) bool { return out[s] }), at)
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

// without returns the state without some of the Services.
func without(state *model.State, which func(*model.Service) bool) *model.State {
	return &model.State{Services: slices.DeleteFunc(slices.Clone(state.Services), which)}
}
