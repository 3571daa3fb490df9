// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/viplab/viplab/proxiers/model"
)

// TestAdvance: only what changed is rendered, the change of a Service is one swap, and nothing is left of deleted ones.
func TestAdvance(t *testing.T) {
	service := func(name string) *model.Service { return &model.Service{Name: name} }
	a, b, c, other := service("a"), service("b"), service("c"), service("b")
	number := 0
	var r Rendered[*string]
	render := func(s *model.Service) *string {
		number++
		text := fmt.Sprintf("%s%d", s.Name, number)
		return &text
	}
	for _, step := range []struct {
		services []*model.Service
		all      bool
		want     []string
	}{
		{[]*model.Service{a, b}, false, []string{"->a1", "->b2"}},
		{[]*model.Service{a, b}, false, nil},
		{[]*model.Service{a, other, c}, false, []string{"b2->b3", "->c4"}},
		{[]*model.Service{other, c}, true, []string{"a1->", "b3->b5", "c4->c6"}},
		{nil, false, []string{"b5->", "c6->"}},
	} {
		var got []string
		for _, s := range r.Advance(&model.State{Services: step.services}, AllIf(step.all), render) {
			text := ""
			if s.Old != nil {
				text = *s.Old
			}
			text += "->"
			if s.New != nil {
				text += *s.New
			}
			got = append(got, text)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("got %q, want %q", got, step.want)
		}
		if len(r.of) != len(step.services) || len(r.Fragments()) != len(step.services) {
			t.Errorf("%d fragments of %d Services", len(r.of), len(step.services))
		}
	}
}
