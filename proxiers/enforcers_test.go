// SPDX-License-Identifier: Apache-2.0

package proxiers

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// eachEnforcer runs a test of a world for each built-in enforcer, with pods as it can have them.
func eachEnforcer(t *testing.T, run func(*testing.T, spec.Proxier, *proxiertest.PolicyWorld)) {
	for _, p := range Enforcers() {
		for _, pods := range []lab.PodNetwork{lab.Bridge, lab.Routed} {
			if p.Name() == "policy-calico" && pods != lab.Routed {
				continue
			}
			t.Run(p.Name()+"/"+pods.String(), func(t *testing.T) {
				run(t, p, proxiertest.NewPolicyWorld(t, p, lab.Topology{Stack: lab.Dual, PodNetwork: pods, Overlay: lab.Direct}))
			})
		}
	}
}

const onlyOwnNamespace = "metadata: {namespace: x, name: own}\nspec: {podSelector: {}, ingress: [{from: " +
	"[{podSelector: {}}]}]}"

// TestEnforcersLeaveNothing: whatever an enforcer or a former life of it has programmed is gone after Stop, and nothing
// else.
func TestEnforcersLeaveNothing(t *testing.T) {
	eachEnforcer(t, func(t *testing.T, p spec.Proxier, w *proxiertest.PolicyWorld) {
		for _, in := range w.Instances {
			proxiertest.Stop(t, in)
		}
		before := proxiertest.Holdings(t, w.Node("n1"))
		w.Instances[0] = proxiertest.Start(t, p, w.Places[0])
		w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, onlyOwnNamespace)))
		if during := proxiertest.Holdings(t, w.Node("n1")); slices.Equal(during, before) {
			t.Fatal("nothing was programmed")
		}
		if err := w.Instances[0].Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Instances[0] = proxiertest.Start(t, p, w.Places[0])
		proxiertest.Stop(t, w.Instances[0])
		if left := proxiertest.Holdings(t, w.Node("n1")); !slices.Equal(left, before) {
			t.Errorf("before (-) and after (+):\n%s", proxiertest.Difference(before, left))
		}
	})
}

// TestEnforcersStartAgain: one that finds the rules of a former one takes over, and what is out of date is gone.
func TestEnforcersStartAgain(t *testing.T) {
	eachEnforcer(t, func(t *testing.T, p spec.Proxier, w *proxiertest.PolicyWorld) {
		for i := range w.Instances {
			w.Instances[i] = proxiertest.Start(t, p, w.Places[i])
		}
		w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, onlyOwnNamespace)))
		fresh := proxiertest.Holdings(t, w.Node("n1"))
		w.Apply(t, proxiertest.Policies(proxiertest.Policy(t,
			"metadata: {namespace: x, name: other}\nspec: {podSelector: {}, policyTypes: [Egress]}")))
		for i := range w.Instances {
			w.Instances[i] = proxiertest.Start(t, p, w.Places[i])
		}
		w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, onlyOwnNamespace)))
		if again := proxiertest.Holdings(t, w.Node("n1")); !slices.Equal(again, fresh) {
			t.Errorf("at once (-) and after a restart (+):\n%s", proxiertest.Difference(fresh, again))
		}
		w.Apply(t) // unchanged
		proxiertest.Again(t, w.Instances[0], w.State)
		if got := w.Reach(t, "x/a"); len(got) != 8 {
			t.Errorf("reached by %q, want by x/b and x/c alone", got)
		}
	})
}
