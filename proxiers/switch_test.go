package proxiers

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// serving are the proxiers that can run here, but for the one that serves nothing.
func serving(t *testing.T) []spec.Proxier {
	return slices.DeleteFunc(All(), func(p spec.Proxier) bool {
		if err := p.Usable(t.Context()); err != nil {
			t.Logf("without %s: %v", p.Name(), err)
			return true
		}
		return p.Name() == "none"
	})
}

// TestSwitch: from any proxier to any other one, Services are served before and after, and nothing of the first one is left
// in the nodes when the second one starts.
func TestSwitch(t *testing.T) {
	all := serving(t)
	w := proxiertest.EmptyWorld(t, lab.Bridge)
	w.Populate(t)
	clean := map[string][]string{}
	for _, n := range w.Nodes() {
		clean[n.Name()] = proxiertest.Holdings(t, n)
	}
	former := "nothing"
	for _, p := range tour(all) {
		t.Run(former+" to "+p.Name(), func(t *testing.T) {
			w.Start(t, p)
			w.Probe(t, w.Rows)
			for _, n := range w.Nodes() {
				if slices.Equal(proxiertest.Holdings(t, n), clean[n.Name()]) {
					t.Errorf("%s has nothing of %s, which serves: what is compared is not what there is", n.Name(), p.Name())
				}
			}
			w.Stop(t)
			for _, n := range w.Nodes() {
				compare(t, p.Name()+" has left on "+n.Name(), proxiertest.Holdings(t, n), clean[n.Name()])
			}
		})
		former = p.Name()
	}
}

// tour is a sequence in which each one follows each other one once.
func tour[T any](all []T) []T {
	var order []T
	for i, a := range all {
		for _, b := range all[i+1:] {
			order = append(order, a, b)
		}
	}
	return append(order, all[0])
}

func TestTour(t *testing.T) {
	order := tour([]int{1, 2, 3, 4, 5})
	steps := map[[2]int]int{}
	for i := range order[1:] {
		steps[[2]int(order[i:i+2])]++
	}
	for a := 1; a <= 5; a++ {
		for b := 1; b <= 5; b++ {
			if n := steps[[2]int{a, b}]; (n == 1) != (a != b) {
				t.Errorf("from %d to %d: %d times", a, b, n)
			}
		}
	}
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%s: %s", what, g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%s: not there any more: %s", what, w)
		}
	}
}

// TestRestart: with all proxiers that leave connections to the kernel, these live on, and clients stay with their
// endpoints, while one takes over from another one.
func TestRestart(t *testing.T) {
	for _, p := range serving(t) {
		if p.Features()[spec.KernelNAT] {
			t.Run(p.Name(), func(t *testing.T) { proxiertest.RestartIsTransparent(t, p) })
		}
	}
}
