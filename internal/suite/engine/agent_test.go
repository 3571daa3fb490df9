// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
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

// The scenarios of the default cluster that let time pass begin first, and then those that wait most often for the
// cluster to converge. Many probes count as well.
func TestTheLongestScenariosBegin(t *testing.T) {
	cell := func(id string, steps ...spec.Step) *Cell { return &Cell{Scenario: spec.Scenario{ID: id, Steps: steps}} }
	change := spec.Step{Do: []spec.Action{{}}}
	check := spec.Step{Check: func(context.Context, spec.World) error { return nil }}
	changeAndCheck := spec.Step{Do: change.Do, Check: check.Check}
	probes := func(n int) spec.Step { return spec.Step{Rows: []spec.Row{{Times: n / 2}, {Times: n / 2}}} }
	waits := cell("waits", probes(2))
	waits.Scenario.Waits = true
	cells := []*Cell{
		cell("nothing", probes(2), probes(2)), cell("change", change), waits, cell("check", check),
		cell("many", probes(120)), cell("both", changeAndCheck), cell("three", changeAndCheck, change),
		cell("most", probes(120), changeAndCheck),
	}
	common, _, _ := grouped(cells)
	var got []string
	for _, c := range common.cells {
		got = append(got, c.Scenario.ID)
	}
	want := []string{"waits", "most", "three", "many", "both", "change", "check", "nothing"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
