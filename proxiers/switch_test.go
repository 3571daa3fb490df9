// SPDX-License-Identifier: Apache-2.0

package proxiers

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// serving returns the proxiers that serve Services by all their addresses.
func serving() []spec.Proxier {
	return slices.DeleteFunc(All(), func(p spec.Proxier) bool { return p.Name() == "none" || !p.Features()[spec.NodePort] })
}

// skipUnusable skips a test where the proxier cannot run; it is run again in a virtual machine.
func skipUnusable(t *testing.T, p spec.Proxier) {
	if err := p.Usable(t.Context()); err != nil {
		t.Skip(err)
	}
}

// TestSwitch: from any proxier to any other one, Services are served before and after, and nothing of the first one is
// left in the nodes when the second one starts.
func TestSwitch(t *testing.T) {
	all := serving()
	for i, p := range all {
		t.Run(p.Name(), func(t *testing.T) {
			skipUnusable(t, p)
			w := proxiertest.EmptyWorld(t, lab.Bridge)
			w.Populate(t)
			clean := map[string][]string{}
			for _, n := range w.Nodes() {
				clean[n.Name()] = proxiertest.Holdings(t, n)
			}
			serve(t, w, p, clean)
			for _, other := range all[:i] {
				if other.Usable(t.Context()) == nil {
					serve(t, w, other, clean)
					serve(t, w, p, clean)
				}
			}
		})
	}
}

// serve runs a proxier for a while. clean is what each node holds without any.
func serve(t *testing.T, w *proxiertest.World, p spec.Proxier, clean map[string][]string) {
	t.Helper()
	t.Log(p.Name())
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
	for _, p := range serving() {
		if p.Features()[spec.KernelNAT] {
			t.Run(p.Name(), func(t *testing.T) {
				skipUnusable(t, p)
				proxiertest.RestartIsTransparent(t, p)
			})
		}
	}
}
