// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/traffic"
)

// finish finds out how the packets ended.
func (t *Traced) finish(o traffic.Outcome) {
	for _, w := range append([]*Walk{t.Reply, t.Relayed}, t.Errors...) {
		if w != nil {
			w.finish(true, nil)
		}
	}
	t.Walk.finish(o == traffic.Reply || o == traffic.Garbled, t.Losses)
}

// finish finds out how the packet ended.
func (w *Walk) finish(answered bool, losses []Loss) {
	if len(w.Steps) == 0 {
		return
	}
	last := len(w.Steps) - 1
	w.End = &End{Outcome: Lost, Place: w.Steps[last].Place, Step: last, Cause: CauseUnknown, Losses: losses}
	if i := slices.IndexFunc(w.Steps, func(s Step) bool { return s.Verdict == "drop" }); i >= 0 {
		w.End.Outcome, w.End.Cause, w.End.Step, w.End.Place = Dropped, CauseRule, i, w.Steps[i].Place
		w.End.Text = fmt.Sprintf("dropped on %s by: %s", w.End.Place, w.Steps[i])
		return
	}
	if answered {
		w.End.Outcome, w.End.Cause = Delivered, CauseSocket
		w.End.Text = fmt.Sprintf("delivered on %s", w.End.Place)
		return
	}
	w.End.Text = fmt.Sprintf("not seen after %s", w.End.Place)
}
