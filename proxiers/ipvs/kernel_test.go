// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

// TestIncrementalEqualsFresh: the kernel accepts everything, and after any sequence of changes it holds the same as
// after a start with the last state.
func TestIncrementalEqualsFresh(t *testing.T) {
	proxiertest.FewerChecks(t, "3")
	start(t, proxiertest.UpNode(t, lab.V4, lab.V6)) // skips where it cannot run
	rapid.Check(t, func(rt *rapid.T) {
		in := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
		s := proxiertest.Random(rt)
		proxiertest.Apply(rt, in, s)
		for range 3 {
			s = proxiertest.Change(rt, s)
			proxiertest.Apply(rt, in, s)
		}
		fresh := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
		proxiertest.Apply(rt, fresh, s)
		if got, want := contents(rt, in), contents(rt, fresh); !slices.Equal(got, want) {
			expectLines(t, "step by step", got, want)
			rt.Fatal("it is not what it would be at once")
		}
		proxiertest.Stop(rt, in)
		proxiertest.Stop(rt, fresh)
	})
}

// TestRefusedEndpoint: an address that the kernel never sends to does not keep others from being served.
func TestRefusedEndpoint(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	s := proxiertest.Cluster(2, 2)
	broken := s.EndpointSlices[0].DeepCopy()
	broken.Endpoints = append(broken.Endpoints, discoveryv1.Endpoint{
		Addresses: []string{"255.255.255.255"}, NodeName: new("n2"),
	})
	s.EndpointSlices[0] = broken
	proxiertest.Apply(t, in, s)
	fresh := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, fresh, proxiertest.Cluster(2, 2))
	expectLines(t, "with a broken endpoint", contents(t, in), contents(t, fresh))
}

// TestChangesRunNoProgram: once the rules are written, changes of what IPVS serves are netlink messages alone.
func TestChangesRunNoProgram(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
	proxiertest.Apply(t, in, proxiertest.Cluster(2, 2))
	// each family has noticed the other's new rules and has checked its own
	proxiertest.Apply(t, in, proxiertest.Cluster(4, 3))
	for n := range 4 {
		proxiertest.Idle(t, in, proxiertest.Cluster(n, 3))
	}
}
