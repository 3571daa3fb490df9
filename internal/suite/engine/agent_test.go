// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// An Apply begins at least 150 ms after the last one, and after three times its length, up to half a second.
func TestPauseAfter(t *testing.T) {
	const ms = time.Millisecond
	for took, want := range map[time.Duration]time.Duration{
		0: 150 * ms, 20 * ms: 130 * ms, 50 * ms: 100 * ms, 100 * ms: 200 * ms, 300 * ms: 200 * ms,
		500 * ms: 0, time.Minute: 0,
	} {
		if got := pauseAfter(took); got != want {
			t.Errorf("after an Apply of %s: a pause of %s, want %s", took, got, want)
		}
	}
}

// The scenarios of the default cluster that wait begin first, and then those with the most steps.
func TestTheLongestScenariosBegin(t *testing.T) {
	cell := func(id string, steps int) *Cell {
		return &Cell{Scenario: spec.Scenario{ID: id, Steps: make([]spec.Step, steps)}}
	}
	waits := cell("waits", 1)
	waits.Scenario.Waits = true
	cells := []*Cell{cell("a", 1), waits, cell("b", 1), cell("longer", 2), cell("longest", 3)}
	common, _, _ := grouped(cells)
	for i, want := range []string{"waits", "longest", "longer", "a", "b"} {
		if got := common.cells[i].Scenario.ID; got != want {
			t.Errorf("scenario %d is %s, want %s", i, got, want)
		}
	}
}
